"""An archive of the broker's classes, which its JVM maps into memory instead of loading them from the jars.

Of the 3.9 CPU seconds of a test broker's life (start, a few requests, stop; Java 17) it saves 1.3. The JVM itself
checks that an archive belongs to its build and to these jars, and its checksums; where it does not like what it finds,
or finds nothing, it starts without. So nobody waits for the archive: it is made once per machine, by the first process
that wants a broker, while others go without.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import time
import warnings
from dataclasses import replace
from pathlib import Path

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.cluster import POLL_SECONDS
from stateflow.connectors.broker.distribution import kafka_distribution
from stateflow.connectors.broker.filelock import try_lock
from stateflow.connectors.broker.node import SMALL_JVM
from stateflow.connectors.broker.places import cache_dir

WRITING_SECONDS_MAX = 60.0
"""Four to five on a quiet machine. Where it takes longer than this, tests go without."""


def archive_arguments(path: Path) -> str:
    """What a JVM must be told to use an archive, which may not be there yet."""
    quiet = "-Xlog:cds=off -Xlog:cds+dynamic=off"
    return f"-XX:SharedArchiveFile={shlex.quote(str(path))} -XX:+VerifySharedSpaces {quiet}"


def make_archive(path: Path) -> None:
    """Make the archive unless it is there, or another process is at it: 9 CPU seconds. Raises SetupError."""
    if path.exists() or (lock := try_lock(path.with_suffix(".lock"))) is None:
        return
    try:
        if not path.exists():
            _make(path)
    finally:
        os.close(lock)


def _make(path: Path) -> None:
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    jvm = replace(SMALL_JVM, arguments=(*SMALL_JVM.arguments, f"-XX:ArchiveClassesAtExit={draft}"))
    with EmbeddedKafka(jvm=jvm) as cluster:
        (node,) = cluster.nodes
        node.ask_to_stop()
        deadline = time.monotonic() + WRITING_SECONDS_MAX
        while node.is_running and time.monotonic() < deadline:  # it ends when it has written
            time.sleep(POLL_SECONDS)
    if _is_usable(draft):
        draft.replace(path)
    else:
        draft.unlink(missing_ok=True)
        warnings.warn(f"Java made no class archive at {path}: brokers start without one", stacklevel=2)


def _is_usable(archive: Path) -> bool:
    """Whether Java takes it, where it may not go without one: false for one whose writer was killed, too."""
    distribution = kafka_distribution()
    arguments = [*shlex.split(archive_arguments(archive)), "-Xshare:on", "-cp", distribution.classpath]
    asked = [str(distribution.java.executable), *arguments, "-version"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def archive_path() -> Path:
    """Its name says what it was made from: this runtime, these jars as they lie here. Raises SetupError without one."""
    distribution = kafka_distribution()
    files = [distribution.java.executable.resolve(), *map(Path, distribution.classpath.split(os.pathsep))]
    made_from = "\n".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    folder = cache_dir() / "test-classes"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.jsa"
