"""The job templates by name, and the spark-submit command that runs one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stateflow.errors import ConfigError
from stateflow.spark.programs import spark_home, spark_java_home, spark_python
from stateflow.spark.session import require_pyspark

JOBS = ("pipeline", "repartition", "recover", "snapshot", "change-feed", "bootstrap")
_FOLDER = Path(__file__).parent / "jobs"


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
        """Run it to its end, its output on ours; returns its exit code."""
        return subprocess.run(self.command(), env=self.environment(), check=False).returncode


def spark_submit() -> Path:
    """The spark-submit of the installed pyspark, or of SPARK_HOME."""
    return spark_home() / "bin" / "spark-submit"
