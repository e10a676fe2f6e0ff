"""Bytes of savepoints: what is written reads back, and what no honest writer wrote is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.checkpoint.queues import read_records, write_records
from stateflow.checkpoint.savepoints import SavepointObjects
from stateflow.clock import ManualClock
from stateflow.errors import SavepointMissing, StateCorrupt
from stateflow.record import Record
from tests.unit.savepoint.test_savepoint_matching import savepoint, store

RECORDS = [
    Record("t", 0, 0, 1000, b"key", b"value", (("trace", b"abc"), ("empty", b""))),
    Record("t", 0, 1, -5, b"", None, ()),
]


def test_the_bytes_of_records_in_flight(tmp_path: Path) -> None:
    file = tmp_path / "queue"
    count, size_bytes, _ = write_records(file, RECORDS)
    assert (count, size_bytes) == (2, len(file.read_bytes()))
    assert list(read_records(file, "t", 0)) == RECORDS
    assert file.read_bytes().hex() == (
        "53465101"
        "00000000000003e8" "00000003" "00000005" "6b6579" "76616c7565"
        "0002" "0005" "7472616365" "00000003" "616263" "0005" "656d707479" "00000000"
        "fffffffffffffffb" "00000000" "ffffffff" "0000"
    )  # fmt: skip


@pytest.mark.parametrize("cut_at", [0, 3, 10, 21, 27, 40, -1])
def test_a_file_that_was_cut_short_is_refused(tmp_path: Path, cut_at: int) -> None:
    file = tmp_path / "queue"
    write_records(file, RECORDS)
    file.write_bytes(file.read_bytes()[:cut_at])
    with pytest.raises(StateCorrupt):
        list(read_records(file, "t", 0))


def objects(place: Path) -> SavepointObjects:
    return SavepointObjects(DirectoryObjects(place), "app", "one", 1, ManualClock())


def test_a_manifest_reads_back_and_one_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SavepointMissing):
        objects(tmp_path).load()
    wanted = savepoint(store("a"), in_flight=2)
    objects(tmp_path).publish(wanted)
    assert objects(tmp_path).load() == wanted


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(format=3),
        lambda m: m.update(app="other"),
        lambda m: m.update(number=2),
        lambda m: m["stores"][0].update(name="../../etc"),
        lambda m: m["stores"][0].update(stage="nowhere"),
        lambda m: m["tasks"].pop(),
        lambda m: m["tasks"][0].update(task="../x"),
        lambda m: m["tasks"][0]["inputs"][0].update(offset_next=-1),
        lambda m: m["queues"].pop(),
        lambda m: m["routing"].update(partitions=10**15),
        lambda m: m["routing"].update(kind="ranges"),
        lambda m: m["stages"][0].update(source_partitions=10**15),
        lambda m: m["stages"][0].update(source_partitions=999_999),
        lambda m: m["stores"][0].update(stage="../x"),
        lambda m: m["queues"][0].update(step="../x"),
        lambda m: m.pop("routing"),
        lambda m: m.pop("format"),
        lambda m: (m.update(format=1), m.pop("stages")),
        lambda m: m.update(format=1, stages=[[[1, 2, 3]]]),
        lambda m: m.update(format=1, tasks=["x"]),
    ],
)
def test_a_manifest_that_no_honest_writer_wrote_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    objects(tmp_path).publish(savepoint(store("a")))
    file = tmp_path / "app/savepoints/one.1/savepoint.json"
    manifest = json.loads(file.read_text())
    change(manifest)
    file.write_text(json.dumps(manifest))
    with pytest.raises(StateCorrupt, match="refused"):
        objects(tmp_path).load()


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b'{"format":2,"more":' + b"[" * 100_000, b"[" * 100_000, b"[]", b'{"format":"\xff"}'],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    objects(tmp_path).publish(savepoint(store("a")))
    (tmp_path / "app/savepoints/one.1/savepoint.json").write_bytes(content)
    with pytest.raises(StateCorrupt, match="refused"):
        objects(tmp_path).load()


def test_a_manifest_of_format_1_is_read(tmp_path: Path) -> None:
    """Version 0.1 had one input per stage, and the event time as JSON beside each input of a task."""
    wanted = savepoint(store("a"), in_flight=2)
    objects(tmp_path).publish(wanted)
    file = tmp_path / "app/savepoints/one.1/savepoint.json"
    manifest = json.loads(file.read_text())
    manifest["format"] = 1
    for stage in manifest["stages"]:
        (port,) = stage.pop("inputs")
        is_source = port["upstream"] is None
        stage["sources"] = [port["name"]] if is_source else []
        stage["repartition"] = None if is_source else port["name"]
        stage["upstream"] = port["upstream"]
    for task in manifest["tasks"]:
        task.pop("event_time")
        for at in task["inputs"]:
            at["metadata"] = '{"v":1,"at":7,"base":7,"d":[0]}'
    file.write_text(json.dumps(manifest))
    found = objects(tmp_path).load()
    assert (found.stages, found.stores, found.queues) == (wanted.stages, wanted.stores, wanted.queues)
    for task, then in zip(found.tasks, wanted.tasks, strict=True):
        assert task.position().offsets == then.position().offsets
        assert task.position().event_time.reached_ms == (7 if task.inputs else -1)


def test_a_manifest_without_end_is_refused_unread(tmp_path: Path) -> None:
    objects(tmp_path).publish(savepoint(store("a")))
    with (tmp_path / "app/savepoints/one.1/savepoint.json").open("r+b") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(StateCorrupt, match="larger than"):
        objects(tmp_path).load()


def test_a_savepoint_that_is_deleted_leaves_no_unfinished_upload(tmp_path: Path) -> None:
    saved = objects(tmp_path)
    saved.publish(savepoint(store("a")))
    folder = tmp_path / "app/savepoints/one.1"
    (folder / ".upload-abcd").write_bytes(b"half of i")
    saved.delete({}, grace_ms=0)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
