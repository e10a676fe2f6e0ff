"""Fetching locked jars, with the real Ivy and a repository in a folder: hashes, offline, concurrency."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateflow.connectors.broker.distribution import KAFKA_JARS
from stateflow.connectors.broker.ivy import SETTINGS as SETTINGS_OF_IVY
from stateflow.connectors.broker.jars import JarSet, fetch, load_jar_set
from stateflow.errors import SetupError

pytestmark = pytest.mark.broker

SETTINGS = """\
<ivysettings>
  <settings defaultResolver="folder"/>
  <resolvers>
    <filesystem name="folder" m2compatible="true">
      <ivy pattern="{root}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
      <artifact pattern="{root}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""
POM = """\
<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{artifact}</artifactId>
<version>{version}</version></project>
"""


def publish(root: Path, group: str, artifact: str, version: str, content: bytes) -> dict[str, object]:
    """Put one jar into the folder's repository; returns its entry for a lock file."""
    folder = root / group.replace(".", "/") / artifact / version
    folder.mkdir(parents=True)
    (folder / f"{artifact}-{version}.jar").write_bytes(content)
    (folder / f"{artifact}-{version}.pom").write_text(
        POM.format(group=group, artifact=artifact, version=version)
    )
    digest = hashlib.sha256(content).hexdigest()
    return {
        "group": group,
        "artifact": artifact,
        "version": version,
        "sha256": digest,
        "size_bytes": len(content),
    }


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, with a cache of its own in front of it."""
    root = tmp_path / "repository"
    root.mkdir()
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(root=root))
    monkeypatch.setenv("STATEFLOW_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("STATEFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STATEFLOW_OFFLINE", raising=False)
    return root


def lock_of(folder: Path, entries: list[dict[str, object]]) -> JarSet:
    path = folder / "lock.json"
    path.write_text(json.dumps({"name": "some", "version": "1", "jars": entries}))
    return load_jar_set(path)


def test_fetched_once_then_used_without_the_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [publish(repository, "org.one", f"part-{n}", "1.0", f"jar {n}".encode()) for n in range(6)]
    jar_set = lock_of(tmp_path, entries)
    folder = fetch(jar_set)
    assert sorted(path.name for path in folder.iterdir()) == [f"part-{n}-1.0.jar" for n in range(6)]
    monkeypatch.setenv("STATEFLOW_OFFLINE", "1")
    monkeypatch.setenv("STATEFLOW_IVY_SETTINGS", "/nowhere")
    assert fetch(jar_set) == folder


def test_archives_alone_are_asked_for(repository: Path, tmp_path: Path) -> None:
    """By the settings that hold where nobody gives others: a repository like Maven Central, without descriptions."""
    entries = [publish(repository, "org.one", f"part-{n}", "1.0", f"jar {n}".encode()) for n in range(9)]
    for description in repository.rglob("*.pom"):
        description.unlink()
    own = SETTINGS_OF_IVY.replace("<ibiblio ", f'<ibiblio root="{repository.as_uri()}/" ')
    (tmp_path / "ivysettings.xml").write_text(own)
    folder = fetch(lock_of(tmp_path, entries))
    assert sorted(path.name for path in folder.iterdir()) == [f"part-{n}-1.0.jar" for n in range(9)]


def test_a_wrong_hash_keeps_nothing(repository: Path, tmp_path: Path) -> None:
    good = publish(repository, "org.one", "good", "1.0", b"as locked")
    altered = {**publish(repository, "org.one", "altered", "1.0", b"not as locked"), "sha256": "0" * 64}
    jar_set = lock_of(tmp_path, [good, altered])
    with pytest.raises(SetupError, match=r"altered-1\.0\.jar: SHA-256 is") as caught:
        fetch(jar_set)
    assert "nothing was kept" in caught.value.message
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_missing_artifact_is_named_with_its_cause(repository: Path, tmp_path: Path) -> None:
    present = publish(repository, "org.one", "present", "1.0", b"here")
    absent = {**present, "artifact": "absent"}
    with pytest.raises(SetupError, match=r"absent-1\.0\.jar: not there") as caught:
        fetch(lock_of(tmp_path, [present, absent]))
    assert "org.one#absent;1.0" in caught.value.message
    assert not list((tmp_path / "cache").rglob("*.jar"))


def test_a_damaged_cache_is_fetched_again(repository: Path, tmp_path: Path) -> None:
    jar_set = lock_of(tmp_path, [publish(repository, "org.one", "part", "1.0", b"whole")])
    jar = fetch(jar_set) / "part-1.0.jar"
    jar.write_bytes(b"cut")
    assert not jar_set.is_cached()
    assert (fetch(jar_set) / "part-1.0.jar").read_bytes() == b"whole"


def test_a_jar_altered_in_the_cache_is_fetched_again(repository: Path, tmp_path: Path) -> None:
    jar_set = lock_of(tmp_path, [publish(repository, "org.one", "part", "1.0", b"whole")])
    (fetch(jar_set) / "part-1.0.jar").write_bytes(b"other")
    assert (fetch(jar_set) / "part-1.0.jar").read_bytes() == b"whole"


def test_offline_and_not_cached_says_what_to_do(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar_set = lock_of(tmp_path, [publish(repository, "org.one", "part", "1.0", b"whole")])
    monkeypatch.setenv("STATEFLOW_OFFLINE", "1")
    with pytest.raises(SetupError) as caught:
        fetch(jar_set)
    assert "dev.py fetch" in caught.value.action


@pytest.mark.slow
def test_two_first_starts_at_once_fetch_kafka_once(repository: Path) -> None:
    """Two processes start on an empty cache; the repository holds Kafka's own jars."""
    cached = cached_kafka_jars()
    for jar in KAFKA_JARS.jars:
        content = (cached / jar.file_name).read_bytes()
        entry = publish(repository, jar.group, jar.artifact, jar.version, content)
        assert entry["sha256"] == jar.sha256
    command = [sys.executable, "-m", "stateflow.connectors.broker"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum(output.count("fetching") for output in outputs) == 1
    assert all("is ready" in output for output in outputs)
    assert KAFKA_JARS.is_cached()


def cached_kafka_jars() -> Path:
    """Kafka's jars in the cache that the rest of the run uses, fetched if they are not there."""
    ours = {name: os.environ.pop(name) for name in ("STATEFLOW_CACHE", "STATEFLOW_IVY_SETTINGS")}
    try:
        return fetch(KAFKA_JARS)
    finally:
        os.environ.update(ours)
