"""Spark's jars, shared by the environments of a machine, so that one archive of their classes serves all of them.

A JVM takes an archive only with the very files that it was made from: one with them on the disk, and as old. A fresh
environment has fresh ones, and making an archive of their classes takes 30 to 45 CPU seconds. So those of the first
environment are kept in the cache, by hard links, and the jars of later ones become links to them.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.connectors.broker.filelock import try_lock
from stateflow.connectors.broker.places import cache_dir

NEEDED = ("bin", "jars")
"""What a home of Spark needs to start its JVM."""


def kept_home() -> Path | None:
    """Where jars such as those installed here are kept, or will be; None where nobody wrote down what was installed."""
    try:
        record = distribution("pyspark").read_text("RECORD") or ""
    except PackageNotFoundError:
        return None
    jars = sorted(line for line in record.splitlines() if line.startswith("pyspark/jars/"))
    digest = hashlib.sha256("\n".join(jars).encode()).hexdigest()[:16]
    return cache_dir() / "test-classes" / f"spark-home-{digest}" if jars else None


def jars_of(home: Path) -> list[Path]:
    """What `jars/*` means on a class path, in that order."""
    return list((home / "jars").glob("*.jar"))


def share_jars(home: Path, kept: Path) -> None:
    """Make the jars of ``home`` one with the kept ones; keeps them where there are none yet.

    What another process is at, or file systems cannot do, is left as it is: then an archive serves ``home`` alone.
    """
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (lock := try_lock(kept.with_suffix(".lock"))) is None:
        return
    try:
        if not kept.exists():
            _keep(home, kept)
        for jar in reversed(jars_of(home)):  # listed as before where the newest come first, as in memory
            _become_one(jar, kept / "jars" / jar.name)
    except OSError as error:
        print(f"class archives: Spark's jars are not shared between environments: {error}")
    finally:
        os.close(lock)


def is_shared(home: Path, kept: Path) -> bool:
    """Whether all jars of ``home`` are one with the kept ones, and there are no others."""
    if not kept.exists() or _names(home) != _names(kept):
        return False
    return all((home / "jars" / name).samefile(kept / "jars" / name) for name in _names(kept))


def identities(files: Iterable[Path]) -> list[str]:
    """What a JVM knows files by, and where on the disk they are: the same for links to the same files."""
    found = ((file.name, file.stat()) for file in files)
    return [f"{name} {stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}" for name, stat in found]


def _names(home: Path) -> set[str]:
    return {jar.name for jar in jars_of(home)}


def _keep(home: Path, kept: Path) -> None:
    with TemporaryDirectory(dir=kept.parent, prefix=f"{kept.name}-") as folder:
        draft = Path(folder) / kept.name
        for part in NEEDED:
            (draft / part).mkdir(parents=True)
            for file in (home / part).iterdir():
                if file.is_file():
                    os.link(file, draft / part / file.name)
        draft.rename(kept)


def _become_one(jar: Path, kept: Path) -> None:
    """Replace a jar by a link to the kept one. One that is not the same, as after a change by hand, stays."""
    if not kept.exists() or kept.samefile(jar) or kept.stat().st_size != jar.stat().st_size:
        return
    draft = jar.with_name(f".{jar.name}.{uuid.uuid4().hex}")  # no name of a jar, which `jars/*` would mean
    os.link(kept, draft)
    draft.replace(jar)
