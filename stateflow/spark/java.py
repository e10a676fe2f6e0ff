"""Spark's Java process on this machine: started so that only we end it, and ended with the session that needs it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stateflow.runtime.process.signals import put_off_signals

if TYPE_CHECKING:
    from pyspark import SparkConf

_END_SECONDS_MAX = 10.0


@contextmanager
def java_started(conf: SparkConf) -> Iterator[None]:
    """Have Spark's Java process run, and make a session of it inside; it is ended if that fails or is interrupted.

    It is in a session of its own (of the operating system): what a terminal or ``timeout`` sends to all processes of a
    command reaches Python alone, which ends its work first. Java ends by itself when Python does.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    try:
        if SparkContext._gateway is None:
            with (
                put_off_signals()
            ):  # amid it nobody could end Java: pyspark has not told yet which process it is
                gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway)
        yield
    except BaseException:
        end_java()
        raise


def end_java() -> None:
    """End Spark's Java process, if there is one that we started, and forget it: the next session starts another."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        process.terminate()
        try:
            process.wait(_END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = None
