"""Compiling the laboratory's Java programs, by a compiler that is a jar: a Java runtime without one will do."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from stateflow.connectors.broker.jars import JarSet, fetch
from stateflow.connectors.broker.java import Java
from stateflow.errors import SetupError

_COMPILER = "org.eclipse.jdt.internal.compiler.batch.Main"
_COMPILE_SECONDS = 120
_JVM_ARGUMENTS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def class_path(*jar_sets: JarSet) -> str:
    """All archives of these sets; fetches those that are not in the cache. Raises ``SetupError``."""
    folders = [(each, fetch(each)) for each in jar_sets]  # each call reads the whole set
    return os.pathsep.join(str(folder / jar.file_name) for each, folder in folders for jar in each.jars)


@functools.cache
def compiled(java: Java, classpath: str, program: Path, *parts: Path) -> Path:
    """The folder of a program and its parts, compiled once in this process and removed with it.

    The compiler is among the jars. Raises ``SetupError``.
    """
    folder = Path(tempfile.mkdtemp(prefix="stateflow-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    arguments = ["-proc:none", "-warn:none", "-17", "-cp", classpath, "-d", str(folder)]
    sources = [str(program), *map(str, parts)]
    done = subprocess.run(
        [str(java.executable), *_JVM_ARGUMENTS, "-cp", classpath, _COMPILER, *arguments, *sources],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_COMPILE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise SetupError(
            f"{program.name} could not be compiled: {(done.stdout + done.stderr).strip()[-500:]}",
            action="Run `stateflow doctor`; if Java is well, report this text.",
        )
    return folder
