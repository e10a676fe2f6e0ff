"""Spark's Java process on this machine: started so that only we end it, and ended with the session that needs it."""

from __future__ import annotations

import logging
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from stateflow.errors import Interrupted, JobFailed, StateflowError
from stateflow.runtime.process.signals import put_off_signals

if TYPE_CHECKING:
    from pyspark import SparkConf

_END_SECONDS_MAX = 10.0
_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM)
"""How Java ends when it is told to."""
_PY4J_LOGGERS = ("", "py4j.clientserver")
_PY4J_SAYS = (
    "Exception occurred while shutting down connection",
    "KeyboardInterrupt while sending command.",
    "Exception while sending command.",
)
_PY4J_SAYS_OF_OURS = "There was an exception while executing the Python Proxy on the Python Side."
"""Of a function that Java has called here. Where it raised an error of ours that is what the query ends with."""


@contextmanager
def java_started(conf: SparkConf) -> Iterator[None]:
    """Have Spark's Java process run, and make a session of it inside; it is ended if that fails or is interrupted.

    It is in a session of its own (of the operating system): what a terminal or ``timeout`` sends to all processes of a
    command reaches Python alone, which ends its work first. What systemd sends to all processes of a service Java
    ignores, as do its Python workers (``worker_daemon.py``). It ends by itself when Python does.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    try:
        if SparkContext._gateway is None:
            # Amid it nobody could end Java: pyspark has not told yet which process it is.
            with put_off_signals():
                gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway)
                _leave_signals_to_python(gateway.jvm)
        yield
    except BaseException:
        end_java()
        raise


def _leave_signals_to_python(jvm: Any) -> None:
    """Have Java ignore SIGTERM, as it does SIGINT."""
    from py4j.protocol import Py4JJavaError

    signals = jvm.sun.misc
    with suppress(Py4JJavaError):  # with the user's option -Xrs Java handles no signals
        signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)


def end_java() -> None:
    """End Spark's Java process, if there is one that we started, and forget it: the next session starts another."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # by which it ends once it works, and ignores signals
        process.terminate()
        try:
            process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


@contextmanager
def judged_by_java() -> Iterator[None]:
    """A call that Java does not answer any more fails, in this scope, with how Java has ended.

    Raises ``Interrupted`` where it was told to stop, as it can be while it starts, else ``JobFailed``. Where pyspark
    calls Java because of an interrupt, and fails, the interrupt is what is told.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if _came_of_interrupt(error):
            raise KeyboardInterrupt from error
        exit_code = None if isinstance(error, Py4JJavaError) else _exit_code()  # a Java error is an answer
        if exit_code is None:
            raise
        if exit_code in _STOPPED:
            raise Interrupted(
                "Stopped by the user, and Spark's Java process was stopped at the same time.",
                action="start it again to go on: what was not committed is done again.",
            ) from error
        raise JobFailed(
            f"Spark's Java process has ended (exit code {exit_code}).",
            action="look for its last words above, and for the kernel's out-of-memory killer; start again.",
        ) from error


def _came_of_interrupt(error: BaseException) -> bool:
    """Whether it was raised while an interrupt made its way up."""
    while (before := error.__context__) is not None:
        if isinstance(before, KeyboardInterrupt):
            return True
        error = before
    return False


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Calls of Java that were interrupted, or met its end, are told once, by who ends; not by traces of Py4J, too."""
    loggers = [logging.getLogger(name) for name in _PY4J_LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_news)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    if record.msg == _PY4J_SAYS_OF_OURS:
        return record.exc_info is None or not isinstance(record.exc_info[1], StateflowError)
    return record.msg not in _PY4J_SAYS


def _exit_code() -> int | None:
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return process.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return None
