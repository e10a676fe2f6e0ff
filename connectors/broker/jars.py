"""Sets of Java archives, pinned by coordinates and SHA-256, fetched once into the user's cache."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stateflow.connectors.broker import ivy
from stateflow.connectors.broker.filelock import file_lock
from stateflow.connectors.broker.places import cache_dir
from stateflow.errors import SetupError

LOCK_TIMEOUT_SECONDS = 600.0  # a first fetch over a slow line
SHOWN_PROBLEMS_MAX = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Jar:
    """One archive: Maven coordinates, the SHA-256 that it must have, and its size in bytes."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """The name it has in a folder of jars."""
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True)
class JarSet:
    """A named, complete set of archives. `digest` changes whenever anything in it does."""

    name: str
    version: str
    jars: tuple[Jar, ...]
    digest: str

    @property
    def size_bytes(self) -> int:
        """Size of all its archives."""
        return sum(jar.size_bytes for jar in self.jars)

    @property
    def folder(self) -> Path:
        """Where the set lies once fetched."""
        return cache_dir() / "jars" / f"{self.name}-{self.version}-{self.digest}"

    def is_cached(self) -> bool:
        """Whether the cache holds every archive as it is locked; reads them all (38 MB of Kafka: 0.04 s)."""
        return not self.problems(self.folder)

    def problems(self, folder: Path) -> list[str]:
        """What is wrong with the archives in a folder, by their SHA-256; empty when all are as locked."""
        return [problem for jar in self.jars if (problem := _problem(jar, folder / jar.file_name))]


def load_jar_set(lock_file: Path) -> JarSet:
    """Read a lock file: a JSON object with `name`, `version` and, in `jars`, the fields of :class:`Jar`."""
    text = lock_file.read_bytes()
    body = json.loads(text)
    jars = tuple(Jar(**entry) for entry in body["jars"])
    assert len({jar.file_name for jar in jars}) == len(jars), f"{lock_file.name} names a jar twice"
    return JarSet(body["name"], body["version"], jars, hashlib.sha256(text).hexdigest()[:16])


def fetch(jar_set: JarSet) -> Path:
    """The folder with exactly the locked archives, fetched first if the cache does not have them.

    What the cache has is hashed at every call: an altered jar would be run by the next start, and its size and time
    say nothing about its content. Safe when several processes start at once: one fetches, the others wait. The folder
    appears whole, by one rename; a wrong hash or a failed download leaves nothing behind. Raises SetupError.
    """
    if jar_set.is_cached():
        return jar_set.folder
    with file_lock(cache_dir() / "jars.lock", timeout_seconds=LOCK_TIMEOUT_SECONDS):
        if not jar_set.is_cached():
            _fetch_and_publish(jar_set)
    assert jar_set.is_cached()
    return jar_set.folder


def _fetch_and_publish(jar_set: JarSet) -> None:
    kept = jar_set.problems(jar_set.folder) if jar_set.folder.exists() else []
    if os.environ.get("STATEFLOW_OFFLINE"):
        raise SetupError(
            f"STATEFLOW_OFFLINE is set and the jars in {jar_set.folder} are not those of the lock:"
            f" {kept[0] if kept else 'there is no such folder'}.",
            action="Run `python3 dev.py fetch` once with a network, or unset STATEFLOW_OFFLINE.",
            problems=kept,
        )
    for problem in kept:
        _log.warning("The jars in %s are fetched again: %s", jar_set.folder, problem)
    _log.info("fetching %d jars of %s %s, once", len(jar_set.jars), jar_set.name, jar_set.version)
    jar_set.folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".fetch-", dir=jar_set.folder.parent))
    try:
        wanted = [(jar.group, jar.artifact, jar.version) for jar in jar_set.jars]
        trouble = ivy.retrieve(wanted, draft)
        _require_all(jar_set, draft / "jars", trouble)
        shutil.rmtree(jar_set.folder, ignore_errors=True)  # a set that lost a file
        (draft / "jars").replace(jar_set.folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _require_all(jar_set: JarSet, folder: Path, trouble: list[str]) -> None:
    problems = jar_set.problems(folder)
    if not problems:
        return
    shown = "".join(f"\n  {problem}" for problem in problems[:SHOWN_PROBLEMS_MAX])
    more = len(problems) - SHOWN_PROBLEMS_MAX
    raise SetupError(
        f"{len(problems)} of {len(jar_set.jars)} jars could not be had; nothing was kept.{shown}"
        + (f"\n  … and {more} more" if more > 0 else "")
        + "".join(f"\n  cause: {line}" for line in trouble[:2])
        + "\n",
        action="Check the network, the proxy and the certificates (`stateflow doctor`), then try again; "
        "STATEFLOW_IVY_SETTINGS names an Ivy settings file for a repository of your own.",
        problems=problems,
    )


def _problem(jar: Jar, path: Path) -> str | None:
    if not path.is_file():
        return f"{jar.file_name}: not there"
    found = file_sha256(path)
    if found != jar.sha256:
        return f"{jar.file_name}: SHA-256 is {found}, the lock says {jar.sha256}: damaged or altered"
    return None


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
