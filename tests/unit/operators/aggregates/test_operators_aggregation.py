"""Aggregation over batches: against an oracle, coalesced, whole records only, forgotten after their time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import EncodeError, GraphError, ProcessingError
from stateflow.lab.applications.stage import StageBench

MINUTE_MS = 60_000


def bench(build: Callable[[Any], Any], key: Any = str, **options: Any) -> StageBench:
    """The stage behind a re-key step; results go to ``out``."""
    app = sf.App("test")
    stream = app.stream(app.topic("in", value=int)).key_by(lambda _v: "", name="by-key", value=int)
    build(stream).to(app.topic("out", key=key, value=sf.Json))
    return StageBench(app.topology().stages[1])


def row(key: str, value: int, when_ms: int = 0) -> tuple[bytes, bytes, int]:
    return key.encode(), sf.Integer.encode(value), when_ms


def results(stage: StageBench) -> list[tuple[Any, Any]]:
    sent = stage.context.sent.pop("out", [])
    return [((s.key or b"").decode(), sf.Json.decode(s.value or b"null")) for s in sent]


def windows(stage: StageBench) -> list[tuple[str, int, Any]]:
    starts_ms = [s.timestamp_ms for s in stage.context.sent.get("out", [])]
    return [(key, start_ms, value) for start_ms, (key, value) in zip(starts_ms, results(stage), strict=True)]


Records = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(-9, 9), st.integers(0, 300_000)), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(Records, max_size=6))
def test_running_aggregates_equal_the_oracle_at_every_commit(
    batches: list[list[tuple[str, int, int]]],
) -> None:
    def build(stream: Any) -> Any:
        return stream.aggregate(name="all", n=sf.count(), total=sf.sum(), low=sf.min(), p50=sf.quantile(0.5))

    stage = bench(build)
    seen: dict[str, list[int]] = defaultdict(list)
    for batch in batches:
        stage.feed(*(row(*record) for record in batch))
        for key, value, _ in batch:
            seen[key].append(value)
        passed_on = results(stage)
        assert [key for key, _ in passed_on] == sorted({key for key, _, _ in batch})
        for key, result in passed_on:
            own = sorted(seen[key])
            middle = (own[(len(own) - 1) // 2] + own[len(own) // 2]) / 2
            assert result == {"n": len(own), "total": sum(own), "low": own[0], "p50": middle}
        stage.commit()
        stage = stage.restarted()


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (lambda s: s.count(name="x"), 3),
        (lambda s: s.sum(name="x"), 12),
        (lambda s: s.sum(lambda v: v * 2, name="x"), 24),
        (lambda s: s.min(name="x"), 1),
        (lambda s: s.max(name="x"), 8),
        (lambda s: s.mean(name="x"), 4),
        (lambda s: s.reduce(lambda one, two: one * two, name="x"), 24),
        (lambda s: s.aggregate(sf.fold(list, lambda a, v: [*a, v], type=list[int]), name="x"), [1, 3, 8]),
        (lambda s: s.aggregate(name="x", n=sf.count(), last=sf.last()), {"n": 3, "last": 8}),
    ],
)
def test_every_aggregating_verb_with_and_without_windows(verb: Callable[[Any], Any], expected: Any) -> None:
    records = [row("a", 1, 5), row("a", 3, 6), row("a", 8, 7)]
    plain = bench(verb)
    plain.feed(*records)
    assert results(plain) == [("a", expected)]
    windowed = bench(lambda stream: verb(stream.window(sf.Tumbling(timedelta(minutes=1)))))
    windowed.feed(*records)
    assert windows(windowed) == [("a", 0, expected)]


def test_a_batch_reads_and_writes_each_key_once() -> None:
    stage = bench(lambda stream: stream.sum(name="total"))
    stage.feed(*(row("ab"[n % 2], n) for n in range(100)))
    assert [key for key, _ in stage.context.stores["total"].changes()] == [b"a", b"b"]
    assert len(results(stage)) == 2


@pytest.mark.parametrize("kind", [int, Any])
def test_an_extreme_of_nothing_is_none_and_stores_nothing(kind: Any) -> None:
    stage = bench(lambda s: s.aggregate(sf.min(lambda v: None if v < 0 else v, type=kind), name="low"))
    stage.feed(row("a", -1), row("b", 5), row("b", -1))
    assert results(stage) == [("a", None), ("b", 5)]
    stage.feed(row("a", 7), row("b", 6))
    assert results(stage) == [("a", 7), ("b", 5)]


def test_counting_writes_kafkas_long() -> None:
    stage = bench(lambda stream: stream.count(name="n"))
    stage.feed(row("a", 1), row("a", 1))
    assert stage.context.stores["n"].changes() == [(b"a", (2).to_bytes(8, "big"))]


def test_a_result_stands_where_its_newest_record_stood() -> None:
    stage = bench(lambda stream: stream.count(name="n"))
    stage.feed(row("a", 1, 50), row("b", 1, 60), row("a", 1, 40))
    assert [(s.key, s.timestamp_ms) for s in stage.context.sent["out"]] == [(b"a", 40), (b"b", 60)]


# --- failures -------------------------------------------------------------------------------------------


def add_even(kept: list[int], value: int) -> list[int]:
    """Changes its accumulator before it fails."""
    kept.append(value)
    if value % 2:
        raise ValueError("odd")
    return kept


@pytest.mark.parametrize("windowed", [False, True])
def test_a_record_is_in_whole_or_not_at_all(windowed: bool) -> None:
    def build(stream: Any) -> Any:
        keyed = stream.window(sf.Tumbling(timedelta(minutes=1))) if windowed else stream
        even = sf.fold(list, add_even, type=list[int])
        return keyed.aggregate(even, name="even", on_error=sf.DeadLetter("dead"))

    stage = bench(build)
    stage.feed(row("a", 2), row("a", 3), row("b", 5), row("a", 4), row("b", 6))
    assert [result for _, result in results(stage)] == [[2, 4], [6]]
    stage.feed(row("a", 7), row("c", 9))
    assert results(stage) == []
    assert [s.value for s in stage.context.sent["dead"]] == [sf.Integer.encode(v) for v in (3, 5, 7, 9)]
    assert len(stage.context.stores["even"].changes()) == 2


def test_failing_names_the_record_that_did_it() -> None:
    even = sf.fold(list, add_even, type=list[int])
    stage = bench(lambda stream: stream.aggregate(even, name="even"))
    with pytest.raises(ProcessingError, match="odd") as caught:
        stage.feed(row("a", 2), row("a", 4), row("a", 5), row("b", 2))
    assert caught.value.fields["offset"] == 2
    assert caught.value.fields["step"] == "even"


def _sum_as_long(policy: Any, stream: Any) -> Any:
    total: sf.Aggregate[int, int, int] = sf.fold(0, lambda a, v: a + v, type=int)
    return stream.aggregate(total, name="x", on_error=policy)


def test_an_accumulator_that_outgrows_its_codec_follows_the_policy() -> None:
    big = 2**62
    for policy, expected in ((sf.Skip(), [("a", big)]), (sf.Fail(), None)):
        stage = bench(partial(_sum_as_long, policy))
        if expected is None:
            with pytest.raises(EncodeError):
                stage.feed(row("a", big), row("a", big))
        else:
            stage.feed(row("a", big), row("a", big))
            assert results(stage) == expected


@pytest.mark.parametrize("cut", [1, 2, 3])
@pytest.mark.parametrize(
    ("aggregate", "outgrown"),
    [
        (sf.sum("n"), 2**64),
        (sf.mean("n"), 2**64),
        (sf.fold(0, lambda total, value: total + value["n"], type=int), 2**63),
    ],
)
@pytest.mark.parametrize("window", [None, sf.Hopping(timedelta(minutes=1), timedelta(seconds=30))])
def test_a_sum_that_is_too_large_between_two_records_follows_the_policy(
    aggregate: sf.Aggregate[Any, Any, Any], outgrown: int, window: Any, cut: int
) -> None:
    """However records are cut into batches: the second one is refused, though with the third all would be well."""
    app = sf.App("test")
    stream: Any = app.stream(app.topic("in", value=sf.MsgPack))
    stream = stream.key_by(lambda _v: "", name="by-key", value=sf.MsgPack)
    stream = stream if window is None else stream.window(window, emit="on_close")
    stream.aggregate(aggregate, name="total", on_error=sf.Skip())
    stage = StageBench(app.topology().stages[1])
    records = [(b"a", sf.MsgPack.encode({"n": n}), 30_000) for n in (outgrown - 1, 1, -10)]
    for first in range(0, 3, cut):
        stage.feed(*records[first : first + cut])
    kept = {aggregate.codec().decode(data) for _, data in stage.context.stores["total"].changes() if data}
    assert kept == {(2, outgrown - 11) if isinstance(aggregate.initial(), tuple) else outgrown - 11}
    assert stage.context.counters["skipped_records_total"] == 1


def test_records_without_a_key_follow_the_policy() -> None:
    app = sf.App("test")
    stream = app.stream(app.topic("in", key=str, value=int), co_partitioned=True)
    stream.count(name="n", on_error=sf.Skip())
    stage = StageBench(app.topology().stages[0])
    stage.feed((None, sf.Integer.encode(1), 0), row("a", 1))
    assert stage.context.counters["skipped_records_total"] == 1
    assert len(stage.context.stores["n"].changes()) == 1


# --- windows --------------------------------------------------------------------------------------------


def per_minute(emit: str = "on_update", grace_seconds: int = 0, **options: Any) -> Callable[[Any], Any]:
    late = options.pop("late", sf.Skip())
    window = sf.Tumbling(timedelta(minutes=1), grace=timedelta(seconds=grace_seconds))
    return lambda stream: stream.window(window, emit=emit, late=late).count(name="per-minute", **options)


def test_windows_are_aligned_and_half_open() -> None:
    stage = bench(per_minute())
    stage.feed(row("a", 1, 0), row("a", 1, MINUTE_MS - 1), row("a", 1, MINUTE_MS))
    assert windows(stage) == [("a", 0, 2), ("a", MINUTE_MS, 1)]


def test_a_result_on_update_carries_the_window_start_as_its_time() -> None:
    stage = bench(per_minute(), key=str)
    stage.feed(row("a", 1, MINUTE_MS + 5))
    (sent,) = stage.context.sent["out"]
    assert (sent.key, sent.timestamp_ms) == (b"a", MINUTE_MS)


def test_a_windowed_key_codec_keeps_the_window_in_the_key() -> None:
    stage = bench(per_minute(), key=sf.WindowedKey(sf.String, MINUTE_MS))
    stage.feed(row("a", 1, MINUTE_MS + 5))
    (sent,) = stage.context.sent["out"]
    assert sent.key is not None
    assert sf.WindowedKey(sf.String, MINUTE_MS).decode(sent.key) == sf.Windowed("a", MINUTE_MS, 2 * MINUTE_MS)


@pytest.mark.parametrize("late", [sf.Skip(), sf.DeadLetter("dead")])
def test_late_begins_at_end_plus_grace(late: Any) -> None:
    stage = bench(per_minute(grace_seconds=10, late=late))
    stage.advance(MINUTE_MS + 9_999)
    stage.feed(row("a", 1, 0))
    assert windows(stage) == [("a", 0, 1)]
    stage.advance(MINUTE_MS + 10_000)
    stage.feed(row("a", 1, MINUTE_MS - 1), row("a", 2, MINUTE_MS))
    assert windows(stage) == [("a", MINUTE_MS, 1)]
    assert stage.context.counters["late_records_total"] == 1
    letters = stage.context.sent.get("dead", [])
    assert [s.value for s in letters] == ([sf.Integer.encode(1)] if isinstance(late, sf.DeadLetter) else [])


def test_a_record_without_event_time_follows_the_policy() -> None:
    stage = bench(per_minute(on_error=sf.Skip()))
    stage.feed(row("a", 1, -1), row("b", 1, 0))
    assert windows(stage) == [("b", 0, 1)]
    assert stage.context.counters["skipped_records_total"] == 1


def test_on_close_each_window_is_sent_once_and_dropped() -> None:
    stage = bench(per_minute("on_close", grace_seconds=10))
    stage.feed(row("b", 1, 0), row("a", 1, 5), row("a", 1, MINUTE_MS))
    assert windows(stage) == []
    stage.advance(MINUTE_MS + 9_999)
    assert windows(stage) == []
    stage.advance(MINUTE_MS + 10_000)
    assert windows(stage) == [("a", 0, 1), ("b", 0, 1)]
    assert [value for _, value in stage.context.stores["per-minute"].changes()] == [
        None,
        (1).to_bytes(8, "big"),
        None,
    ]
    stage.advance(MINUTE_MS + 20_000)
    assert windows(stage) == []


def test_on_update_state_is_kept_for_ttl_and_then_deleted() -> None:
    stage = bench(per_minute(grace_seconds=10, ttl=timedelta(minutes=5)))
    stage.feed(row("a", 1, 0))
    stage.advance(6 * MINUTE_MS - 1)
    assert stage.context.stores["per-minute"].changes()[0][1] is not None
    stage.advance(6 * MINUTE_MS)
    assert stage.context.stores["per-minute"].changes()[0][1] is None


def test_a_restarted_task_closes_what_it_finds_in_the_store() -> None:
    stage = bench(per_minute("on_close"))
    stage.feed(row("a", 1, 0), row("b", 1, MINUTE_MS))
    stage.commit()
    stage = stage.restarted()
    stage.feed(row("c", 1, 30_000))
    stage.advance(MINUTE_MS)
    assert windows(stage) == [("a", 0, 1), ("c", 0, 1)]
    stage.commit()
    stage = stage.restarted()
    stage.advance(3 * MINUTE_MS)
    assert windows(stage) == [("b", MINUTE_MS, 1)]


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(Records, max_size=8), restarts=st.sets(st.integers(0, 7)), grace=st.sampled_from([0, 30])
)
def test_closed_windows_equal_the_oracle(
    batches: list[list[tuple[str, int, int]]], restarts: set[int], grace: int
) -> None:
    """Whatever the order, the lateness and the restarts: each window once, with what came in time."""
    stage = bench(per_minute("on_close", grace_seconds=grace))
    expected: dict[tuple[str, int], int] = defaultdict(int)
    watermark_ms = -1
    sent: list[tuple[str, int, Any]] = []
    for index, batch in enumerate(batches):
        stage.feed(*(row(*record) for record in batch))
        for key, _, when_ms in batch:
            start_ms = when_ms - when_ms % MINUTE_MS
            if start_ms + MINUTE_MS + grace * 1000 > watermark_ms:
                expected[key, start_ms] += 1
        watermark_ms = max([watermark_ms, *(when_ms for _, _, when_ms in batch)])
        stage.advance(watermark_ms)
        sent += windows(stage)
        if index in restarts:
            stage.commit()
            stage = stage.restarted()
    stage.advance(10**9)
    sent += windows(stage)
    assert len({(key, start_ms) for key, start_ms, _ in sent}) == len(sent)
    assert {(key, start_ms): value for key, start_ms, value in sent} == expected
    assert list(stage.context.stores["per-minute"].scan()) == []


# --- time to live of running aggregates -------------------------------------------------------------------


def test_a_key_is_forgotten_so_long_after_its_last_record() -> None:
    stage = bench(lambda stream: stream.count(name="n", ttl=timedelta(milliseconds=100)))
    stage.feed(row("a", 1, 1000), row("b", 1, 1050))
    stage.advance(1100)
    stage.feed(row("a", 1, 1100), row("b", 1, 1100))
    assert results(stage) == [("a", 1), ("b", 1), ("a", 1), ("b", 2)]
    stage.advance(1300)
    assert [value for _, value in stage.context.stores["n"].changes()] == [None, None]


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (per_minute("on_close", ttl=timedelta(1)), "emits on close and has a ttl"),
        (lambda s: s.count(name="n", ttl=timedelta(0)), "below 1 ms"),
        (lambda s: s.aggregate(name="n"), "names no aggregates"),
        (lambda s: s.aggregate(sf.count(), name="n", m=sf.count()), "both one and several"),
        (lambda s: s.window(sf.Tumbling(timedelta(0))).count(name="n"), "cannot be"),
        (lambda s: s.window(sf.Tumbling(timedelta(1), timedelta(-1))).count(name="n"), "cannot be"),
    ],
)
def test_what_cannot_be_is_refused(build: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(GraphError, match=why):
        bench(build)
