"""Cached jars are used only while they are, byte by byte, what the lock says; no jar is fetched here."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from stateflow.connectors.broker.jars import JarSet, fetch, load_jar_set
from stateflow.errors import SetupError

CONTENT = b"a whole archive"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JarSet:
    """A set of one jar that is in the cache, on a machine without a network."""
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATEFLOW_OFFLINE", "1")
    entry = {
        "group": "org.one",
        "artifact": "part",
        "version": "1.0",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "size_bytes": len(CONTENT),
    }
    lock = tmp_path / "lock.json"
    lock.write_text(json.dumps({"name": "some", "version": "1", "jars": [entry]}))
    jar_set = load_jar_set(lock)
    jar_set.folder.mkdir(parents=True)
    (jar_set.folder / "part-1.0.jar").write_bytes(CONTENT)
    return jar_set


def test_what_is_as_locked_is_used(cached: JarSet) -> None:
    assert cached.is_cached()
    assert fetch(cached) == cached.folder


def test_a_jar_of_the_same_size_and_time_with_other_content_is_not_run(cached: JarSet) -> None:
    jar = cached.folder / "part-1.0.jar"
    fetch(cached)
    before = jar.stat()
    jar.write_bytes(CONTENT.replace(b"whole", b"other"))
    os.utime(jar, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not cached.is_cached()
    with pytest.raises(SetupError, match=r"part-1\.0\.jar: SHA-256 is"):
        fetch(cached)


def test_a_jar_that_is_gone_is_named(cached: JarSet) -> None:
    (cached.folder / "part-1.0.jar").unlink()
    with pytest.raises(SetupError, match=r"part-1\.0\.jar"):
        fetch(cached)
