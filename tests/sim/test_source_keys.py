"""A record whose key its topic's codec cannot read follows the policy of its stream, whatever is done with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.catalog.names import changelog_topic
from stateflow.cli.state import _readable
from stateflow.errors import DecodeError
from stateflow.operators.steps.guard import Guard
from stateflow.operators.topics import source_keys
from stateflow.operators.topics.source_keys import SourceKeys
from stateflow.query.changes import ChangeRange
from stateflow.query.columns import RowDecoder, TableSpec
from stateflow.query.local import TaskRow, as_fields
from stateflow.query.read import TableRequest, read_table
from stateflow.query.snapshot import table_of
from stateflow.record import RecordBatch, TopicPartition
from stateflow.state.decoding import StoreDecoder
from stateflow.testing import TestDriver


@dataclass(frozen=True)
class Point:
    x: int


class Last(sf.Operator[Any, int, int]):
    value: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.value.set(value)
        ctx.emit(value)


VERBS: dict[str, Callable[[sf.Stream[Any, int]], sf.Stream[Any, Any]]] = {
    "count": lambda stream: stream.count(name="kept"),
    "sum": lambda stream: stream.aggregate(sf.sum(), name="kept"),
    "window": lambda stream: stream.window(sf.Tumbling(timedelta(hours=1))).count(name="kept"),
    "table": lambda stream: stream.to_table(name="kept").changes(),
    "dedup": lambda stream: stream.dedup(name="kept", within=timedelta(hours=1)),
    "process": lambda stream: stream.process(Last, name="kept"),
    "map": lambda stream: stream.map(lambda value: value, value=int),
}


def _app(key: Any, verb: str, on_error: Any) -> tuple[sf.App, sf.Topic[Any, int], sf.Topic[Any, int]]:
    app = sf.App("strict")
    raw, topic = sf.App("raw").topic("in", key=bytes, value=int), app.topic("in", key=key, value=int)
    stream = VERBS[verb](app.stream(topic, co_partitioned=True, on_error=on_error))
    if verb not in ("window", "table"):
        stream.to(app.topic("out", key=bytes, value=sf.Json))
    return app, raw, topic


@pytest.mark.parametrize("verb", ["count", "sum", "dedup", "process", "map"])
@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        (int, 5, b"abc"),
        (str, "ada", b"\xff"),
        (float, 0.5, b"abc"),
        (bool, True, b"\x02"),
        (Point, Point(1), b'{"x": "a"}'),
        (sf.Json, {"x": 1}, b"{"),
    ],
)
def test_a_key_that_cannot_be_read_is_a_dead_letter(verb: str, key: Any, good: Any, bad: bytes) -> None:
    app, raw, topic = _app(key, verb, sf.DeadLetter("dead"))
    driver = TestDriver(app, partitions=1)
    driver.send_many(
        raw, [(topic.key.encode(good), 1, 1_000), (bad, 2, 2_000), (topic.key.encode(good), 3, 3_000)]
    )
    dead = driver.output(app.topic("dead", key=bytes, value=int))
    assert [(letter.key, letter.value) for letter in dead] == [(bad, 2)]
    assert dict(dead[0].headers)["sf-error-message"].startswith(b"The record's key: ")
    assert {row.key for row in driver.output(app.topic("out", key=bytes, value=sf.Json))} == {
        topic.key.encode(good)
    }
    driver.stop()


@pytest.mark.parametrize("verb", ["count", "sum", "window", "table", "process"])
def test_what_is_kept_can_be_read(verb: str) -> None:
    app, raw, _ = _app(int, verb, sf.Skip())
    driver = TestDriver(app, partitions=1)
    driver.send_many(raw, [(b"abc", 1, 1_000), (bytes(8), 2, 2_000)])
    store = "kept-value" if verb == "process" else "kept"
    assert read_table(driver.cluster, TableRequest(app="strict", store=store))["key"].to_pylist() == [0]
    driver.stop()


def test_the_default_is_to_stop() -> None:
    app, raw, _ = _app(int, "count", sf.Fail())
    driver = TestDriver(app, partitions=1)
    with pytest.raises(DecodeError, match="The record's key: 3 bytes cannot be decoded by Integer"):
        driver.send(raw, 1, key=b"abc")


def test_texts_are_checked_each_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves of one character in two keys are two keys that cannot be read; and what is remembered is bounded."""
    assert not sf.String.reads_all([b"\xc3", b"\xa9"])
    assert sf.String.reads_all(["é".encode(), b"", b"\0"])
    monkeypatch.setattr(source_keys, "_KNOWN_MAX", 3)
    nothing_fails: Any = None
    keys = SourceKeys(sf.Json, Guard(nothing_fails, nothing_fails, "in", sf.Fail()))
    for number in range(10):
        names = [b"%d" % number, b"%d" % (number + 1), None]
        batch = RecordBatch(TopicPartition("in", 0), [0, 1, 2], [0, 0, 0], names, [b"", b"", b""])
        assert keys.readable(batch) is batch
        assert len(keys._known) <= 3


@pytest.mark.parametrize("verb", ["count", "window", "process"])
def test_keys_kept_by_a_version_that_did_not_check_hide_no_others(
    verb: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SourceKeys, "readable", lambda _self, rows: rows)
    app, raw, _ = _app(int, verb, sf.Skip())
    driver = TestDriver(app, partitions=1)
    driver.send_many(raw, [(b"abc", 1, 1_000), (bytes(8), 2, 2_000), (b"\xff", 3, 3_000)])
    store = "kept-value" if verb == "process" else "kept"

    assert read_table(driver.cluster, TableRequest(app="strict", store=store))["key"].to_pylist() == [0]
    assert "2 keys cannot be read by Integer; their rows are left out: 616263, ff" in caplog.text

    entry = driver._wiring.catalog.stores[store]
    (task,) = driver._worker.tasks.values()
    decoder, reader = StoreDecoder(entry), task.context.store(store)
    told: dict[str, None] = {}
    found = [TaskRow("task", row) for row in decoder.rows(reader)]
    assert [row.row.key for row in _readable(found, told)] == [0]
    assert list(told) == ["hex:616263", "hex:ff"]
    (row,) = decoder.rows_of(reader, decoder.key_bytes("hex:616263"))
    assert as_fields(TaskRow("task", row))["key"] == "hex:616263"

    topic = changelog_topic("strict", store, 0)
    source = TopicPartition(topic, 0)
    offsets = driver.cluster.ranges([source])[source]
    changes = ChangeRange(table_of(entry).to_fields(), 0, source, offsets).batches(driver.cluster)
    assert [key for batch in changes for key in batch["key"].to_pylist()] == [0]
    driver.stop()


def test_a_value_that_cannot_be_read_is_an_error_still() -> None:
    decoder = RowDecoder(
        TableSpec(kind="value", layout="plain", key_codec={"codec": "string"}, value_codec={"codec": "json"})
    )
    with pytest.raises(DecodeError):
        decoder.batch([b"\xff", b"a"], [b"1", b"{"], 0)
    assert decoder.batch([b"\xff", b"a"], [b"1", b"2"], 0).to_pylist() == [
        {"key": "a", "value": "2", "partition": 0}
    ]
