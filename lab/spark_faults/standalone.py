"""A standalone cluster of Spark as processes of this machine, and its processes by what they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stateflow.errors import SetupError
from stateflow.spark.programs import spark_java_home
from stateflow.spark.submit import spark_submit

ROOT = Path(__file__).resolve().parents[2]
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Java processes that serve a few small jobs each."""
_START_SECONDS_MAX = 120.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Standalone:
    """A master with its workers."""

    url: str

    @property
    def conf(self) -> dict[str, str]:
        """Settings of a job on it: small executors of one core each."""
        return {
            "spark.executor.memory": "500m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.driver.memory": "500m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Standalone]:
    """A master and workers of one core each, on free ports; ended with all that they started.

    Raises ``SetupError`` when the master does not come up.
    """
    with ExitStack() as stack:
        file = folder / "spark.log"
        log = stack.enter_context(file.open("w"))
        master = ["master.Master", "--port", "0", "--webui-port", "0"]
        stack.enter_context(_started(master, log.fileno(), folder))
        url = _master_url(file)
        for number in range(workers):
            own = folder / f"worker-{number}"
            own.mkdir()
            worker = ["worker.Worker", "--cores", "1", "--memory", "700m", "--webui-port", "0"]
            stack.enter_context(_started([*worker, "--work-dir", str(own), url], log.fileno(), own))
        yield Standalone(url)


def _master_url(log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS_MAX
    while time.monotonic() < deadline:
        if found := re.search(r"spark://[\d.]+:\d+", log.read_text()):
            return found[0]
        time.sleep(_PAUSE_SECONDS)
    raise SetupError("Spark's master did not start.", action=f"look at {log}.")


@contextmanager
def _started(arguments: list[str], log: int, folder: Path) -> Iterator[None]:
    kind, *rest = arguments
    java_class = f"org.apache.spark.deploy.{kind}"
    command = [str(spark_submit().with_name("spark-class")), java_class, "--host", "127.0.0.1", *rest]
    with running_tree(command, cluster_environment(), folder, log):
        yield


@contextmanager
def running_tree(
    command: list[str], environment: Mapping[str, str], folder: Path, log: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A program for the time of the block; it and what it started are killed then. ``log`` is a file descriptor."""
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill_tree(process.pid)
        process.wait()


def cluster_environment() -> dict[str, str]:
    """For processes of the cluster, and for drivers: this checkout, this Python, this machine alone."""
    here = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    java = {"JAVA_HOME": str(spark_java_home()), "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}
    return {**os.environ, **here, **java}


def descendants(pid: int) -> list[int]:
    """All processes below one, each before its own children."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def command_of(pid: int) -> str:
    """A process's command line; empty for one that is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def is_program(pid: int, program: Path) -> bool:
    """True for the Python process that runs a program, not for the Java process that has started it."""
    words = command_of(pid).split()
    return str(program) in words[1:] and "java" not in Path(words[0]).name


def executors() -> list[int]:
    """Java processes of executors below this one."""
    return [pid for pid in descendants(os.getpid()) if "CoarseGrainedExecutorBackend" in command_of(pid)]


def python_workers() -> list[int]:
    """Python processes that run tasks below this one: children of an executor's daemon."""
    found = []
    for executor in executors():
        for daemon in descendants(executor):
            if "pyspark.daemon" in command_of(daemon):
                found += [child for child in descendants(daemon) if "pyspark.daemon" in command_of(child)]
    return sorted(set(found))


def kill_tree(pid: int) -> None:
    """SIGKILL for a process and all below it."""
    for each in [*descendants(pid), pid]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
