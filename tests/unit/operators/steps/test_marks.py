"""Marks of records: made at the source, carried through every step and over re-keys; and lateness, judged by them."""

from __future__ import annotations

import struct
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateflow as sf
from stateflow.changelog.format import MARK_HEADER
from stateflow.errors import StateCorrupt
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.steps.marks import mark_headers, running_marks, sent_marks
from stateflow.operators.steps.rows import repeated, where, with_values, without
from stateflow.operators.windows.lateness import Lateness
from stateflow.record import RecordBatch, TopicPartition

Times = st.lists(st.integers(-1, 50), max_size=12)
SOURCE = TopicPartition("in", 0)


def batch_of(times_ms: list[int], marks_ms: list[int] | None = None) -> RecordBatch:
    rows = list(range(len(times_ms)))
    return RecordBatch(SOURCE, rows, times_ms, [b"k"] * len(rows), list(rows), marks_ms=marks_ms)


@given(times_ms=Times, begin_ms=st.integers(-1, 50), cuts=st.sets(st.integers(1, 11)))
def test_marks_are_the_same_in_every_batching(times_ms: list[int], begin_ms: int, cuts: set[int]) -> None:
    expected = [max([begin_ms, *times_ms[: row + 1]]) for row in range(len(times_ms))]
    found: list[int] = []
    mark_ms = begin_ms
    edges = [0, *sorted(cut for cut in cuts if cut < len(times_ms)), len(times_ms)]
    for first, after in pairwise(edges):
        part = times_ms[first:after]
        marks_ms = running_marks(part, mark_ms)
        assert (marks_ms is None) == (expected[first:after] == part)
        found += part if marks_ms is None else marks_ms
        mark_ms = max([mark_ms, *part])
    assert found == expected


@given(times_ms=Times, offsets_ms=st.lists(st.integers(-3, 3), min_size=12, max_size=12))
def test_marks_survive_the_way_through_a_topic(times_ms: list[int], offsets_ms: list[int]) -> None:
    marks_ms = [when + offset for when, offset in zip(times_ms, offsets_ms, strict=False)]
    batch = batch_of(times_ms)
    batch.headers = [(("other", b""), *headers) for headers in mark_headers(marks_ms, times_ms)]
    assert sent_marks(batch) == (None if marks_ms == times_ms else marks_ms)


def test_a_mark_is_eight_bytes_and_nothing_else_passes() -> None:
    assert mark_headers([5, 7], [5, 6]) == [(), ((MARK_HEADER, struct.pack(">q", 7)),)]
    batch = batch_of([5])
    batch.headers = [((MARK_HEADER, b"seven"),)]
    with pytest.raises(StateCorrupt, match="5 bytes instead of 8"):
        sent_marks(batch)


def test_every_way_of_picking_rows_keeps_their_marks() -> None:
    batch = batch_of([5, 3, 4], [5, 6, 7])
    assert with_values(batch, ["x", "y", "z"]).marks_ms == [5, 6, 7]
    assert where(batch, [True, False, True]).marks_ms == [5, 7]
    assert without(batch, [0]).marks_ms == [6, 7]
    assert repeated(batch, [[1, 2], [], [3]]).marks_ms == [5, 5, 7]
    assert batch.rows(1, 3).marks_ms == [6, 7]
    assert batch_of([1, 2]).rows(0, 1).marks_ms is None


# --- lateness -----------------------------------------------------------------------------------------------


@given(
    rows=st.lists(st.tuples(st.integers(-1, 60), st.integers(0, 60)), max_size=12),
    size=st.integers(1, 20),
    grace=st.integers(0, 20),
    reached_ms=st.integers(-1, 60),
    has_marks=st.booleans(),
)
def test_late_is_what_comes_when_event_time_has_reached_end_plus_grace(
    rows: list[tuple[int, int]], size: int, grace: int, reached_ms: int, has_marks: bool
) -> None:
    times_ms = [when for when, _ in rows]
    marks_ms = [when + ahead for when, ahead in rows] if has_marks else None
    window = sf.Tumbling(timedelta(milliseconds=size), grace=timedelta(milliseconds=grace))
    expected = [
        row
        for row, (when_ms, mark_ms) in enumerate(zip(times_ms, marks_ms or times_ms, strict=True))
        if when_ms >= 0 and max(mark_ms, reached_ms) >= (when_ms // size + 1) * size + grace
    ]
    assert Lateness(window, reached_ms).late_rows(batch_of(times_ms, marks_ms)) == expected


# --- steps ----------------------------------------------------------------------------------------------------


def marks_sent(stage: StageBench) -> list[tuple[int, int]]:
    """Time and mark of each re-keyed record."""
    (rows,) = stage.context.rekeyed.values()
    batch = batch_of([sent.timestamp_ms for sent in rows])
    batch.headers = [sent.headers for sent in rows]
    return list(zip(batch.timestamps_ms, sent_marks(batch) or batch.timestamps_ms, strict=True))


def row(value: int, when_ms: int) -> tuple[bytes, bytes, int]:
    return b"k", sf.Integer.encode(value), when_ms


def rekeyed(**declared: Any) -> StageBench:
    """A stage that doubles values 2, leaves out values 3 and fails on values 4, and re-keys the rest."""
    app = sf.App("test")
    (
        app.stream(app.topic("in", key=str, value=int, **declared), on_error=sf.Skip())
        .map(lambda value: 1 // (value - 4) and value, on_error=sf.Skip())
        .flat_map(lambda value: [value] * (2 if value == 2 else 1))
        .filter(lambda value: value != 3)
        .key_by(str, name="by-value", key=str, value=int)
        .count(name="n")
    )
    return StageBench(app.topology().stages[0])


def test_marks_go_on_from_batch_to_batch_and_through_the_verbs() -> None:
    stage = rekeyed()
    stage.feed(row(1, 50), row(3, 70), row(2, 60), (b"k", b"bad", 80), row(1, 10))
    stage.feed(row(1, 20), row(4, 90), row(1, 30))
    assert marks_sent(stage) == [(50, 50), (60, 70), (60, 70), (10, 80), (20, 80), (30, 90)]


def test_declared_event_time_makes_the_marks() -> None:
    stage = rekeyed(timestamp=lambda value: -1 if value == 9 else 100 - 10 * value)
    stage.feed(row(1, 1_000), row(9, 9_000), row(2, 2_000), (b"k", b"bad", 9_000))
    stage.feed(row(5, 3_000))
    assert marks_sent(stage) == [(90, 90), (80, 90), (80, 90), (50, 90)]


def test_two_streams_over_one_topic_agree_on_marks() -> None:
    app = sf.App("test")
    topic = app.topic("in", key=str, value=int, timestamp=lambda value: value)
    for name in ("first", "second"):
        app.stream(topic).key_by(str, name=name, key=str, value=int).count(name=f"n-{name}")
    stage = StageBench(app.topology().stages[0])
    stage.feed(row(50, 1), row(40, 2), row(60, 3))
    first, second = stage.context.rekeyed["first"], stage.context.rekeyed["second"]
    assert first == second
    assert [bool(sent.headers) for sent in first] == [False, True, False]


def test_the_stage_behind_judges_by_the_marks_that_it_reads() -> None:
    app = sf.App("test")
    (
        app.stream(app.topic("in", value=int))
        .key_by(str, name="by-value", key=str, value=int)
        .window(sf.Tumbling(timedelta(milliseconds=10)), emit="on_close")
        .count(name="n")
        .to(app.topic("out", key=str, value=int))
    )
    stage = StageBench(app.topology().stages[1])
    stage.feed(row(1, 1), row(1, 2), row(1, 3), headers=mark_headers([1, 9, 10], [1, 2, 3]))
    assert stage.context.late_records == [("n", TopicPartition("repartition", 0), 2, 3, 10)]
    stage.advance(20)
    assert [sf.Integer.decode(sent.value or b"") for sent in stage.context.sent["out"]] == [2]
