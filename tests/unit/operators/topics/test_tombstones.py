"""Records of source topics without a value: who is given them, who is spared, and when they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stateflow as sf
from stateflow.lab.applications.stage import StageBench


def bench(build: Callable[[sf.Stream[bytes, Any], sf.Topic[Any, Any]], object]) -> StageBench:
    """A stage that reads ``in`` and writes ``out``."""
    app = sf.App("test")
    build(app.stream(app.topic("in", value=int)), app.topic("out", value=sf.Json))
    return StageBench(app.topology().stages[0])


def rows(*values: int) -> list[tuple[bytes, bytes, int]]:
    return [(b"k", sf.Integer.encode(value), 1000 + index) for index, value in enumerate(values)]


def values_of(stage: StageBench, topic: str = "out") -> list[Any]:
    return [None if s.value is None else sf.Json.decode(s.value) for s in stage.context.sent.get(topic, [])]


@pytest.mark.parametrize(
    "verb",
    [
        lambda stream: stream.map(lambda v: v + 0),
        lambda stream: stream.map_pairs(lambda _k, v: v + 0),
        lambda stream: stream.flat_map(lambda v: [v + 0]),
        lambda stream: stream.filter(lambda v: v + 0),
        lambda stream: stream.peek(lambda v: v + 0),
        lambda stream: stream.branch(lambda v: v + 0)[0],
        lambda stream: stream.merge(stream.filter(lambda v: v > 9)).map(lambda v: v + 0),
    ],
)
def test_a_function_of_the_value_is_not_given_tombstones(verb: Callable[[Any], Any]) -> None:
    stage = bench(lambda stream, out: verb(stream).to(out))
    stage.feed(*rows(1), (b"k", None, 5), *rows(2))
    assert values_of(stage) == [1, 2]
    assert stage.context.counters["empty_records_total"] == 1


def test_tombstones_are_written_on_beside_and_behind_a_merge() -> None:
    def build(stream: Any, out: Any) -> None:
        stream.merge(stream.map(lambda v: v * 10)).to(out)

    stage = bench(build)
    stage.feed(*rows(1), (b"gone", None, 5), (None, None, 6))
    assert [(sent.key, sent.timestamp_ms) for sent in stage.context.sent["out"]] == [
        (b"k", 1000),
        (b"k", 1000),
        (b"gone", 5),
    ]
    assert values_of(stage) == [10, 1, None]
    assert stage.context.counters["empty_records_total"] == 2, (
        "one of neither key nor value, one before the map"
    )


def test_a_null_that_a_codec_reads_is_a_value() -> None:
    app = sf.App("test")
    source, out = app.topic("in", key=str, value=sf.Json), app.topic("out", key=str, value=sf.Json)
    app.stream(source).map(lambda value: [value]).to(out)
    stage = StageBench(app.topology().stages[0])
    stage.feed((b"k", b"null", 1), (b"k", None, 2))
    assert values_of(stage) == [[None]]


def test_a_tombstone_comes_when_event_time_stands_where_it_does() -> None:
    app = sf.App("test")
    source = app.topic("in", key=str, value=int, timestamp=lambda value: value)
    app.stream(source).to(app.topic("out", key=str, value=sf.Json))
    stage = StageBench(app.topology().stages[0])
    batch = stage.feed((b"k", None, 900), *rows(50, 40), (b"k", None, 901), *rows(60))
    assert [sent.timestamp_ms for sent in stage.context.sent["out"]] == [0, 50, 40, 50, 60]
    assert batch.timestamps_ms == [0, 50, 40, 50, 60]
    stage.feed((b"k", None, 902))
    assert stage.context.sent["out"][-1].timestamp_ms == 60


class Table(sf.Operator[str, int, list[Any]]):
    row: sf.Value[int | None] = sf.state()

    def on_record(self, value: int | None, ctx: sf.Context[list[Any]]) -> None:
        if value is None:
            self.row.clear()
        else:
            self.row.set(value)
        ctx.emit([value, self.row.get()])


@pytest.mark.parametrize("beside", [False, True])
def test_an_operator_sees_that_a_key_was_deleted(beside: bool) -> None:
    app = sf.App("shop")
    stream = app.stream(app.topic("rows", key=str, value=int), co_partitioned=True)
    source = stream.merge(stream.filter(lambda value: value > 99)) if beside else stream
    source.process(Table, name="table").to(app.topic("out", key=str, value=sf.Json))
    if beside:
        stream.count(name="values")
    stage = StageBench(app.topology().stages[0])
    stage.feed((b"a", sf.Integer.encode(5), 0), (b"a", None, 1))
    assert [sf.Json.decode(sent.value or b"") for sent in stage.context.sent["out"]] == [[5, 5], [None, None]]
    assert stage.context.stores["table-row"].get(b"a") is None
    if beside:
        assert sf.Integer.decode(stage.context.stores["values"].get(b"a") or b"") == 1
