"""Archives of the classes of Java programs, which a JVM maps into memory instead of loading them from the jars.

Of the 3.9 CPU seconds of a test broker's life (start, a few requests, stop; Java 17) one saves 1.3, of the 14.5 of a
small Spark session 8.7. The JVM itself checks that an archive belongs to its build and to these jars, and its
checksums; where it does not like what it finds, or finds nothing, it starts without. So nobody waits for an archive:
it is made once per machine (`tests/kept_jars.py`), by the first process that wants one, while others go without.

`python -m tests.class_archive NAME…` makes them, as `dev.py test` does before the first test. Amid the tests Spark's
has to share the cores with five processes of them: it comes too late for most, or takes longer than
WRITING_SECONDS_MAX, and then there is none in the whole run.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.cluster import POLL_SECONDS
from stateflow.connectors.broker.distribution import kafka_distribution
from stateflow.connectors.broker.filelock import try_lock
from stateflow.connectors.broker.java import find_java
from stateflow.connectors.broker.node import SMALL_JVM
from stateflow.connectors.broker.places import cache_dir
from stateflow.errors import SetupError
from tests.kept_jars import identities, is_shared, jars_of, kept_home, share_jars

SHORT_LIVED_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Spark's Java processes, which serve a few small jobs each: without it, half of their CPU time goes into
compiling what then runs for seconds. The embedded broker has the same options of its own.
"""
WRITING_SECONDS_MAX = 240.0
"""Four to fifteen on a quiet machine, for Spark's up to 46 s of CPU. Where it takes longer than this, tests go without.

Less than a test may take: amid the tests, it is the first one that waits.
"""
_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class JavaProgram:
    """A Java program, by its runtime and its jars, and how to run it once."""

    name: str
    java: Path
    classpath: str
    files: tuple[Path, ...]
    """All that is on the class path."""
    run: Callable[[str], None]
    """With one more argument for the JVM, to its end."""

    @property
    def archive(self) -> Path:
        """Where its archive is, or will be; its name says what it is made from: the runtime, the jars as they lie."""
        made_from = "\n".join([str(self.java.resolve()), *identities([self.java.resolve(), *self.files])])
        folder = cache_dir() / "test-classes"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / f"{self.name}-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}.jsa"


def main(names: Sequence[str]) -> None:
    """Make the archives that are not there yet; says what is missing for one, and is content without."""
    home, kept = spark_home(), kept_home()
    if "spark" in names and home is not None and kept is not None:
        share_jars(home, kept)
    for name in names:
        try:
            make_archive(PROGRAMS[name]())
        except SetupError as error:
            print(f"class archives: {error}", file=sys.stderr)


def broker_program() -> JavaProgram:
    """The embedded broker. Raises ``SetupError`` without Java or its jars."""
    distribution = kafka_distribution()
    files = tuple(map(Path, distribution.classpath.split(os.pathsep)))
    return JavaProgram("broker", distribution.java.executable, distribution.classpath, files, _run_broker)


def spark_home() -> Path | None:
    """Where Spark is installed in this environment."""
    found = find_spec("pyspark")  # importing it takes a second, which most test processes need not wait
    return None if found is None or found.origin is None else Path(found.origin).parent


def spark_program() -> JavaProgram:
    """The driver of a Spark session on this machine. Raises ``SetupError`` without Java."""
    home = spark_home()
    if home is None:
        raise SetupError("pyspark is not installed.", action="install stateflow-kafka[spark].")
    jars = home / "jars"
    classpath = os.pathsep.join(map(str, [home / "conf", *jars.glob("slf4j-api-*.jar"), jars / "*"]))
    files = tuple(jars_of(home))
    return JavaProgram("spark", find_java().executable, classpath, files, _run_spark)


def archive_arguments(path: Path) -> str:
    """What a JVM must be told to use an archive, which may not be there yet."""
    quiet = "-Xlog:cds=off -Xlog:cds+dynamic=off"
    return f"-XX:SharedArchiveFile={shlex.quote(str(path))} -XX:+VerifySharedSpaces {quiet}"


def make_archive(program: JavaProgram) -> Path:
    """Make it unless it is there, or another process is at it: 9 CPU seconds, Spark's 30. Raises ``SetupError``."""
    path = program.archive
    if path.exists() or (lock := try_lock(path.with_suffix(".lock"))) is None:
        return path
    try:
        if not path.exists():
            _make(program, path)
    finally:
        os.close(lock)
    return path


def _make(program: JavaProgram, path: Path) -> None:
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    program.run(f"-XX:ArchiveClassesAtExit={draft}")
    if _is_usable(program, draft):
        draft.replace(path)
    else:
        draft.unlink(missing_ok=True)
        warnings.warn(f"Java made no class archive at {path}: it starts without one", stacklevel=2)


def _is_usable(program: JavaProgram, archive: Path) -> bool:
    """Whether Java takes it, where it may not go without one: false for one whose writer was killed, too."""
    given = [*shlex.split(archive_arguments(archive)), "-Xshare:on", "-cp", program.classpath]
    asked = [str(program.java), *given, "-version"]
    return archive.exists() and subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _run_broker(argument: str) -> None:
    jvm = replace(SMALL_JVM, arguments=(*SMALL_JVM.arguments, argument))
    with EmbeddedKafka(jvm=jvm) as cluster:
        (node,) = cluster.nodes
        node.ask_to_stop()
        deadline = time.monotonic() + WRITING_SECONDS_MAX
        while node.is_running and time.monotonic() < deadline:  # it ends when it has written
            time.sleep(POLL_SECONDS)


def _run_spark(argument: str) -> None:
    """The JVM outlives the program that asked for it, but holds its output until it has written."""
    home, kept = spark_home(), kept_home()
    # What is kept outlasts this environment, and the archive names the files that it was made from.
    lasting = {"SPARK_HOME": str(kept)} if home and kept and is_shared(home, kept) else {}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark_work"],
        cwd=_ROOT,
        env={**os.environ, **lasting, "SPARK_SUBMIT_OPTS": f"{SHORT_LIVED_JVM} {argument}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        process.communicate(timeout=WRITING_SECONDS_MAX)
    except subprocess.TimeoutExpired:  # what there is of an archive is looked at, and of no use
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


PROGRAMS = {"broker": broker_program, "spark": spark_program}


if __name__ == "__main__":
    main(sys.argv[1:])
