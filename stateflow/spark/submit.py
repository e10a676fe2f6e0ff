"""The job templates by name, and the spark-submit command that runs one."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stateflow.connectors.broker.processes import children
from stateflow.errors import ConfigError, Interrupted
from stateflow.interrupts import as_ctrl_c
from stateflow.runtime.process.signals import put_off_signals
from stateflow.spark.programs import spark_home, spark_java_home, spark_python
from stateflow.spark.session import require_pyspark

JOBS = ("pipeline", "repartition", "recover", "snapshot", "change-feed", "bootstrap")
_FOLDER = Path(__file__).parent / "jobs"
_JAVA_PACKAGE = "org.apache.spark."
_STOP_SECONDS_MAX = 90.0
"""Longer than the workers of an application have to stop (``long_running.py``)."""


@dataclass(frozen=True, slots=True)
class JobTemplate:
    """A runnable file."""

    name: str
    path: Path

    @property
    def source(self) -> str:
        """Its text."""
        return self.path.read_text()

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return (ast.get_docstring(ast.parse(self.source)) or "").partition("\n")[0]


def templates() -> list[JobTemplate]:
    """All job templates."""
    return [template(name) for name in JOBS]


def template(name: str) -> JobTemplate:
    """One of them. Raises ``ConfigError`` for a name that is none."""
    if name not in JOBS:
        raise ConfigError(f"There is no job {name!r}.", action=f"choose one of {', '.join(JOBS)}.")
    return JobTemplate(name, _FOLDER / f"{name.replace('-', '_')}.py")


def check_copy(name: str, target: Path) -> None:
    """Raise what ``write_copy`` would raise."""
    template(name)
    if target.exists():
        raise _exists(target)


def write_copy(name: str, target: Path) -> None:
    """Copy a template to a file of the user's own. Raises ``ConfigError`` when the file exists."""
    source = template(name).source
    try:
        with target.open("x") as out:
            out.write(source)
    except FileExistsError as error:
        raise _exists(target) from error


def _exists(target: Path) -> ConfigError:
    return ConfigError(f"{target} exists already.", action="name another file.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One run of a program under spark-submit."""

    program: Path
    arguments: Sequence[str]
    master: str = "local[2,4]"
    conf: Mapping[str, str]

    def command(self) -> list[str]:
        """The command line. Raises ``SetupError`` without pyspark."""
        require_pyspark()
        conf = [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]
        return [str(spark_submit()), "--master", self.master, *conf, str(self.program), *self.arguments]

    def environment(self) -> dict[str, str]:
        """What spark-submit needs in its environment: this Python, and for a local master a Java that can
        run it.
        """
        # Executors of a cluster may have it elsewhere, as in a packed environment.
        theirs = {"PYSPARK_PYTHON": sys.executable, **os.environ}
        wanted = {**theirs, "PYSPARK_DRIVER_PYTHON": sys.executable}
        if self.master.startswith("local"):
            wanted |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), spark_python())
            wanted |= {"JAVA_HOME": str(spark_java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
        return wanted

    def run(self) -> int:
        """Run it to its end, its output on ours; returns its exit code.

        Interrupted, it has the program stop in order, and waits for it. Raises ``KeyboardInterrupt`` then, unless the
        program has told itself that it was stopped.
        """
        with as_ctrl_c(signal.SIGTERM), as_ctrl_c(signal.SIGHUP):
            # In a session of its own, as Ctrl-C in a terminal is for us: Java would end at once, under its program.
            with put_off_signals():
                process = subprocess.Popen(self.command(), env=self.environment(), start_new_session=True)
            try:
                return process.wait()
            except KeyboardInterrupt:
                exit_code = _stopped(process)
                if exit_code in (0, Interrupted.exit_code):
                    return exit_code
                raise


def _stopped(process: subprocess.Popen[bytes]) -> int:
    """Stop what spark-submit runs; returns its exit code. Interrupted once more, it is killed."""
    try:
        programs = [pid for pid, command in children(process.pid).items() if _JAVA_PACKAGE not in command]
        for pid in programs:
            os.kill(pid, signal.SIGTERM)
        if not programs:  # Java still starts, or is the program
            os.killpg(process.pid, signal.SIGTERM)
        return process.wait(_STOP_SECONDS_MAX)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()
    except ProcessLookupError:  # it ended by itself meanwhile
        return process.wait()


def spark_submit() -> Path:
    """The spark-submit of the installed pyspark, or of SPARK_HOME."""
    return spark_home() / "bin" / "spark-submit"
