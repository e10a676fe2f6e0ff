"""Spark sessions with the settings that stateflow's jobs need, on this machine or on a cluster."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stateflow.errors import SetupError, install_command
from stateflow.spark import worker_daemon
from stateflow.spark.java import end_java, java_started, judged_by_java, quiet_interrupts
from stateflow.spark.java_log import JavaLog, java_log
from stateflow.spark.programs import spark_java_home, spark_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)

NO_SPECULATION = ("spark.speculation", "false")
"""A speculative twin of a task would fence the first one in the middle of its work."""


_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """How a session is made."""

    app_name: str = "stateflow"
    cores: int = 2
    """Tasks at the same time, for a session on this machine."""
    task_attempts_max: int = 4
    """How often a failed task is started before its job fails; 1 would make one killed worker the end of
    it.
    """
    driver_memory: str = "1g"
    master: str | None = None
    """A cluster's master URL; None runs on this machine."""
    is_python: bool = False
    """Python does the work, and the JVM only hands bytes on: its quick compiler is enough, which takes half of the CPU
    until the session is warm.
    """
    conf: Mapping[str, str] = field(default_factory=dict)
    """Further Spark settings, which win over ours."""
    log_level: str = "ERROR"
    ui: bool = False
    """Whether Spark's pages are served: on this machine's loopback address for a session here, on a cluster as that
    has it. For what runs long; a short job leaves no time to look.
    """


def spark_conf(settings: SparkSettings) -> dict[str, str]:
    """The Spark settings of a session, apart from its master."""
    return {
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": settings.driver_memory,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.cores),
        "spark.task.maxFailures": str(settings.task_attempts_max),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **(dict.fromkeys(_JAVA_OPTIONS, _QUICK_COMPILER) if settings.is_python else {}),
        **settings.conf,
        NO_SPECULATION[0]: NO_SPECULATION[1],
    }


@contextmanager
def spark_session(settings: SparkSettings | None = None) -> Iterator[SparkSession]:
    """A session for the time of a ``with`` block.

    One that is already there (a notebook's, spark-submit's) is used as it is and left running. Raises
    ``SetupError`` when pyspark or Java is missing, or when the JVM does not start.
    """
    settings = settings or SparkSettings()
    require_pyspark()
    from pyspark.sql import SparkSession

    present = SparkSession.getActiveSession()
    if present is not None:
        yield present
        return
    before = signal.getsignal(signal.SIGINT)
    with quiet_interrupts():
        is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        log = JavaLog(None) if is_submitted else java_log(settings.app_name)
        session = _submitted(settings) if is_submitted else _started(settings, log)
        # pyspark's handler calls Java amid another call of it, which spoils both; the end of the session stops all jobs
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
        try:
            with log.named_by_errors(), judged_by_java():
                yield session
        except KeyboardInterrupt:
            _hush(session)
            raise
        finally:
            _stop(session)


def _hush(session: SparkSession) -> None:
    """Have Java say nothing of the jobs that end with the session."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, ConnectionError):  # where it has ended it says nothing either
        session.sparkContext.setLogLevel("OFF")


def _stop(session: SparkSession) -> None:
    from py4j.protocol import Py4JError

    try:
        # The warning is pyspark's, where Java has ended.
        with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):
            session.stop()
    except (Py4JError, ConnectionError) as error:
        _LOG.info("Spark's Java process has ended before its session was stopped: %s", error)
        end_java()


def require_pyspark() -> None:
    """Raise ``SetupError`` when pyspark or pyarrow is not installed."""
    missing = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if missing:
        raise SetupError(
            f"Spark jobs need {' and '.join(missing)}, which this Python does not have.",
            action=f"{install_command('spark')}, or use `--engine local` where there is one.",
            missing=missing,
        )


def _submitted(settings: SparkSettings) -> SparkSession:
    """The session of a program that spark-submit started: its master and its settings win over ours."""
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    conf = SparkConf()
    for name, value in spark_conf(settings).items():
        conf.setIfMissing(name, value)
    conf.set(*NO_SPECULATION)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _started(settings: SparkSettings, log: JavaLog) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    conf = spark_conf(settings)
    if settings.master is None:
        conf = {"spark.python.daemon.module": worker_daemon.MODULE, **conf}
    with tempfile.TemporaryDirectory(prefix="stateflow-spark-") as folder, _environment(settings):
        if settings.log_level == "ERROR" and "log4j" not in (options := conf.get(_JAVA_OPTIONS[0], "")):
            quiet = Path(folder) / "log4j2.properties"
            quiet.write_text(log.settings())
            conf[_JAVA_OPTIONS[0]] = f"{options} -Dlog4j2.configurationFile=file:{quiet}".lstrip()
        builder = SparkSession.builder.appName(settings.app_name)
        builder = builder.master(settings.master or f"local[{settings.cores},{settings.task_attempts_max}]")
        for name, value in conf.items():
            builder = builder.config(name, value)
        try:
            with java_started(SparkConf().setAll(list(conf.items()))):
                session = builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise SetupError(
                f"Spark's Java process did not start ({error}).",
                action="look at the lines above; `stateflow doctor` shows which Java is used, and"
                " STATEFLOW_JAVA names"
                " another.",
            ) from error
    session.sparkContext.setLogLevel(settings.log_level)
    return session


@contextmanager
def _environment(settings: SparkSettings) -> Iterator[None]:
    """What Spark reads from the environment while it starts; put back afterwards."""
    wanted = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if settings.master is not None and "PYSPARK_PYTHON" in os.environ:
        del wanted["PYSPARK_PYTHON"]  # executors of a cluster have it elsewhere, as in a packed environment
    if settings.master is None:
        wanted["PYSPARK_PYTHON"] = spark_python()
        wanted |= {"JAVA_HOME": str(spark_java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    elif "JAVA_HOME" not in os.environ:
        wanted |= {"JAVA_HOME": str(spark_java_home())}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
