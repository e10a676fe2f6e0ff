"""A savepoint of two workers under load, on a real broker, from the command line: as another application, and back."""

from __future__ import annotations

import json
import random
import signal
import struct
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.log.reading import read_range
from stateflow.record import TopicPartition
from tests.broker.command_site import APPS, Ended, Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

TALLIES = f"{APPS / 'tallies.py'}:app"


class Load:
    """Numbers written to two partitions for as long as it lasts; what was written is known."""

    def __init__(self, site: Site, topic: str) -> None:
        self.fed: list[list[int]] = [[], []]
        self._cluster = KafkaCluster(site.bootstrap)
        self._topic = topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        rng = random.Random(1)
        writer = self._cluster.writer()
        while not self._ending.wait(0.02):
            for _ in range(20):
                number, partition = rng.randrange(10_000), rng.randrange(2)
                self.fed[partition].append(number)
                stamp_ms = int(time.time() * 1000)
                writer.send(
                    self._topic, None, struct.pack(">q", number), partition=partition, timestamp_ms=stamp_ms
                )
            writer.commit()
        writer.close()

    @property
    def written(self) -> int:
        """How many numbers so far."""
        return sum(map(len, self.fed))

    def end(self) -> Counter[int]:
        """Stop; returns how often each key was written."""
        self._ending.set()
        self._thread.join()
        self._cluster.close()
        return Counter(number % 100 for part in self.fed for number in part)


def restored(site: Site, *arguments: str) -> dict[str, object]:
    ended = site.type("savepoint", "restore", *arguments, "--json")
    assert ended.code == 0, ended.out
    found: dict[str, object] = json.loads(ended.out)
    return found


def test_a_savepoint_of_two_workers_under_load_goes_on_elsewhere(site: Site, tmp_path: Path) -> None:
    place, other = str(tmp_path / "savepoints"), f"{site.name}x"
    site.topic("in", partitions=2)
    site.topic("out")
    site.cluster.create([TopicSpec(f"{other}-out", 1)])
    site.set(TALLIES_APP=site.name, TALLIES_SOURCE=f"{site.name}-in", STATEFLOW_SAVEPOINTS=place)
    load = Load(site, f"{site.name}-in")
    workers = site.begin("run", TALLIES, "--workers", "2")
    try:
        wait_until(lambda: len(site.counted()) > 50, lambda: f"counts in:\n{workers.said}")
        made = site.type("savepoint", "create", TALLIES, "one", "--to", place, "--json")
        assert made.code == 0, f"{made.out}\n{workers.said}"
        before = load.written
        wait_until(lambda: load.written > before + 100, "input behind the barrier")
        expected = load.end()
        wait_until(lambda: site.counted() == expected, lambda: f"all counts in:\n{workers.said}")
        workers.send(signal.SIGTERM)
        assert workers.ended() == 0, workers.said
    finally:
        load.end()
        workers.close()
    facts = json.loads(made.out)
    assert facts["tasks"] == 4
    listed = json.loads(site.type("savepoint", "list", "--app", site.name, "--json").out)
    assert [row["name"] for row in listed["savepoints"]] == ["one"]
    assert site.type("savepoint", "verify", "--app", site.name, "one").code == 0
    shown = json.loads(site.type("savepoint", "show", "--app", site.name, "one", "--json").out)
    vector = {
        at["partition"]: at["offset_next"]
        for task in shown["tasks"]
        for at in task["inputs"]
        if at["topic"] == f"{site.name}-in"
    }
    assert all(0 < vector[partition] < len(load.fed[partition]) for partition in range(2)), "in the midst"

    site.set(TALLIES_APP=other)
    done = restored(site, "--from", place, "--as", other, "--app", site.name, "one")
    saved = Counter(n % 100 for p in range(2) for n in load.fed[p][: vector[p]])
    assert (done["generation"], done["keys"]) == (0, len(saved))
    again = ["savepoint", "restore", "--from", place, "--app", site.name, "one", "--json"]
    for taken in (other, site.name):
        refused = site.type(*again, "--as", taken)
        assert (refused.code, refused.error["error"]) == (2, "ConfigError")
        assert f"there is an application '{taken}' already" in refused.error["message"]
    for options in (["--as", "bad id!"], ["--as", "bad id!", "--dry-run"]):
        assert site.type(*again, *options).code == 2
    ended = site.type("run", TALLIES, "--until-drained", "--state-dir", str(tmp_path / "other"))
    assert ended.code == 0, ended.err
    source = TopicPartition(f"{other}-out", 0)
    records = read_range(site.cluster, source, site.cluster.ranges([source])[source])
    newest = {
        int.from_bytes(key, "big"): json.loads(value)
        for batch in records
        for key, value in zip(batch.keys, batch.values, strict=True)
    }
    late = {number % 100 for p in range(2) for number in load.fed[p][vector[p] :]}
    assert {key: newest[key] for key in late} == {key: expected[key] for key in late}

    site.set(TALLIES_APP=site.name, TALLIES_CHANGE="another store")
    refused = site.type("savepoint", "restore", TALLIES, "one", "--json")
    assert refused.error["error"] == "SavepointUnfit"
    site.set(TALLIES_CHANGE="a store more")
    back = restored(site, TALLIES, "one")
    assert (back["generation"], back["stores_kept"], back["stores_empty"]) == (1, ["seen"], ["summed"])
    assert site.type("run", TALLIES, "--until-drained").code == 0
    assert site.counted() == expected
    gone = site.type("savepoint", "delete", "--app", site.name, "one", "--yes", "--grace", "0s")
    assert gone.code == 0, gone.err
    assert not [path for path in Path(place).rglob("*") if path.is_file()]


@pytest.mark.parametrize("is_named", [True, False], ids=["as documented", "place not in the settings"])
def test_the_documented_commands_one_after_the_other(site: Site, is_named: bool) -> None:
    """`docs/operating.md`: without the setting every command behind `create` was refused, and `delete` had no way."""
    site.topic("in", "out")
    site.feed([1, 11, 2])
    assert site.drained().code == 0
    place = str(site.place / "backups")
    named = [] if is_named else ["--from", place]
    if is_named:
        (site.place / "stateflow.toml").write_text(f'savepoints = "{place}"\n')

    def savepoint(verb: str, *arguments: str) -> Ended:
        return site.type("savepoint", verb, site.digits, *arguments)

    made = savepoint("create", "before-1", "--to", place)
    assert made.code == 0, made.err
    assert ("--from" in made.err) is not is_named
    assert savepoint("list").code == 0
    if not is_named:
        for verb in ("show", "verify", "restore"):
            refused = savepoint(verb, "before-1")
            assert refused.code == 2
            assert refused.err.count(place) == 1
            assert "name the place with --from" in refused.err
    assert "before-1 of" in made.out
    assert "The savepoint before-1 is whole" in savepoint("verify", "before-1", *named).out
    assert savepoint("restore", "before-1", *named, "--dry-run").code == 0
    restored = savepoint("restore", "before-1", *named)
    assert "from the savepoint before-1 with its next start" in restored.out
    site.feed([21])
    assert site.drained().code == 0
    assert site.counted() == {1: 3, 2: 1}
    if not is_named:
        assert savepoint("delete", "before-1", "--yes").code == 2
    assert savepoint("delete", "before-1", *named, "--yes").code == 0
    again = savepoint("create", "before-1", "--to", str(site.place / "savepoints"))
    assert again.code == 0
    assert "not removed" not in again.err, "what was deleted has left nothing to look for"
