"""Accumulators that stay decoded until the commit: results, state and failures are the same as in bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import DecodeError, EncodeError, ProcessingError
from stateflow.lab.applications.stage import StageBench
from stateflow.native.loading import core
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.state.layout import split_window
from stateflow.store.decoded import VALUE_BYTES, DecodedStore
from stateflow.store.derived import index_family
from stateflow.store.folded import FoldedStore

native = pytest.mark.skipif(core() is None, reason="the native core is not in use")

AGGREGATES: dict[str, Callable[[], Aggregate[Any, Any, Any]]] = {
    "count": sf.count,
    "count of": lambda: sf.count("n"),
    "sum": lambda: sf.sum("n"),
    "mean": lambda: sf.mean("n"),
    "least": lambda: sf.min("n"),
    "least whole": lambda: sf.min(_whole, type=int),
    "most": lambda: sf.max("n"),
    "most real": lambda: sf.max(_real, type=float),
    "sum of numbers": lambda: sf.sum(_number),
}
WINDOWS: list[tuple[Any, Any]] = [
    (None, "on_update"),
    (sf.Tumbling(timedelta(minutes=1)), "on_update"),
    (sf.Tumbling(timedelta(minutes=1)), "on_close"),
    (sf.Hopping(timedelta(minutes=1), timedelta(seconds=20)), "on_update"),
    (sf.Hopping(timedelta(minutes=1), timedelta(seconds=20)), "on_close"),
]
NUMBERS = st.one_of(
    st.integers(-9, 9),
    st.floats(width=64),
    st.integers(-(2**62), 2**62),
    st.sampled_from([2**62, -(2**62), 2**63 - 1, 2**64, None, True, "text", [1], 0.1, 1e300, float("inf")]),
    st.sampled_from(
        [2**53, 2**53 + 1, -(2**53) - 1, float(2**53), 0.0, -0.0, float("nan"), 2**31, -(2**31) - 1]
    ),
)
Batches = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), NUMBERS, st.integers(0, 200_000)), max_size=8), max_size=5
)
SKIP, FAIL = sf.Skip(), sf.Fail()


def _number(value: dict[str, Any]) -> Any:
    """What there is to add in most values: more batches then stay in the core."""
    n = value["n"]
    return n if isinstance(n, (int, float)) and abs(n) < 2**53 else 1


def _whole(value: dict[str, Any]) -> int | None:
    return value["n"] if type(value["n"]) is int or value["n"] is None else 7


def _real(value: dict[str, Any]) -> float | None:
    return value["n"] if isinstance(value["n"], float) or value["n"] is None else 0.5


def staged(
    aggregate: Aggregate[Any, Any, Any],
    *,
    window: Any = None,
    emit: Any = "on_update",
    seen: bool,
    on_error: Any,
) -> StageBench:
    """A stage with this aggregate, its results sent to ``out`` where they are to be seen."""
    app = sf.App("test")
    stream: Any = app.stream(app.topic("in", value=dict)).key_by(
        lambda _v: "", name="by-key", value=sf.MsgPack
    )
    if window is not None:
        stream = stream.window(window, emit=emit)
    results = stream.aggregate(aggregate, name="x", on_error=on_error)
    if seen:
        key = str if window is None else sf.WindowedKey(sf.String, 60_000)
        results.to(app.topic("out", key=key, value=sf.MsgPack))
    return StageBench(app.topology().stages[1])


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(AGGREGATES)),
    st.sampled_from(WINDOWS),
    st.booleans(),
    st.sampled_from([SKIP, FAIL]),
    Batches,
    st.sets(st.integers(0, 4)),
)
def test_like_accumulators_in_bytes(
    name: str,
    window: tuple[Any, Any],
    seen: bool,
    on_error: Any,
    batches: list[list[Any]],
    restarts: set[int],
) -> None:
    aggregate = AGGREGATES[name]()
    assert aggregate.may_wait is not None
    kind: dict[str, Any] = {"window": window[0], "emit": window[1], "seen": seen, "on_error": on_error}
    decoded, plain = staged(aggregate, **kind), staged(replace(aggregate, may_wait=None), **kind)
    assert isinstance(decoded.context.store("x"), DecodedStore)
    assert not isinstance(plain.context.store("x"), DecodedStore)
    for number, batch in enumerate(batches):
        rows = [
            (key.encode(), sf.MsgPack.encode({"n": n}) if n != 2**64 else b"\x81\xa1n\xc1", when)
            for key, n, when in batch
        ]
        failures = [_failure(stage, rows) for stage in (decoded, plain)]
        assert failures[0] == failures[1]
        if failures[0] is not None:
            return  # the epoch is lost, and the task with it
        assert decoded.context.sent == plain.context.sent
        assert decoded.context.counters == plain.context.counters
        decoded.advance(max([when for _, _, when in batch], default=0))
        plain.advance(max([when for _, _, when in batch], default=0))
        for stage in (decoded, plain):
            stage.commit()
        assert _state(decoded) == _state(plain)
        if window[0] is not None:
            assert (
                {split_window(key)[::-1] for key, _ in _state(decoded)} <= _listed(decoded) <= _listed(plain)
            )
        if number in restarts:
            decoded, plain = decoded.restarted(), plain.restarted()


@native
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("aggregate", ["sum", "least", "most", "count", "mean"])
def test_numbers_stay_in_the_core_over_commits_and_closings(aggregate: str, window: tuple[Any, Any]) -> None:
    """Nothing is handed over to Python, and what was met once is not looked for on disk again."""
    kind: dict[str, Any] = {"window": window[0], "emit": window[1], "seen": False, "on_error": FAIL}
    stage = staged(AGGREGATES[aggregate](), **kind)
    plain = staged(replace(AGGREGATES[aggregate](), may_wait=None), **kind)
    store = stage.context.store("x")
    assert isinstance(store, FoldedStore)
    draw = random.Random(3)
    for minute in range(30):
        rows = [
            (draw.choice([b"a", b"b", b"c"]), sf.MsgPack.encode({"n": draw.choice([1, 2.5, -3])}), at)
            for at in sorted(draw.randrange(60_000 * minute, 60_000 * minute + 90_000) for _ in range(20))
        ]
        for each in (stage, plain):
            each.feed(*rows)
        sizes = [sum(s.dirty_bytes for s in each.context.stores.values()) for each in (stage, plain)]
        assert sizes[1] <= sizes[0] <= sizes[1] + VALUE_BYTES * len(rows) * 3, "so much is to be committed"
        for each in (stage, plain):
            each.advance(60_000 * minute)
            each.commit()
        assert _state(stage) == _state(plain)
        assert window[0] is None or _listed(stage) == _listed(plain)
        assert store._is_folding


@native
def test_values_that_are_no_numbers_are_soon_left_to_python() -> None:
    stage = staged(sf.min("n"), seen=False, on_error=FAIL)
    store = stage.context.store("x")
    assert isinstance(store, FoldedStore)
    for text in ("d", "c", "b", "a", "a", "a"):
        stage.feed((b"k", sf.MsgPack.encode({"n": text}), 0))
        stage.commit()
    assert _state(stage) == [(b"k", sf.MsgPack.encode("a"))]
    assert not store._is_folding


def test_what_is_counted_and_not_looked_at_costs_one_look_per_epoch() -> None:
    stage = staged(sf.count(), seen=False, on_error=FAIL)
    for _ in range(3):
        stage.feed(*((b"k", sf.MsgPack.encode({}), 0) for _ in range(5)))
    store = stage.context.store("x")
    assert isinstance(store, DecodedStore)
    assert store.is_dirty
    assert store.get(b"k") == sf.Integer.encode(15), "who reads it sees it"
    stage.commit()
    assert _state(stage) == [(b"k", sf.Integer.encode(15))]


@pytest.mark.parametrize(("on_error", "skipped"), [(SKIP, 2), (FAIL, None)])
def test_an_accumulator_that_is_none_is_met_where_the_policy_can_see_to_it(
    on_error: Any, skipped: int | None
) -> None:
    stage = staged(sf.count(), seen=False, on_error=on_error)
    stage.context.committed.apply({"x": [(b"k", b"no number")]}, {})
    rows = [(b"k", sf.MsgPack.encode({}), 0)] * 2
    if skipped is None:
        stage.feed(*rows)
        with pytest.raises(DecodeError):
            stage.commit()
    else:
        stage.feed(*rows)
        assert stage.context.counters["skipped_records_total"] == skipped


def test_a_sum_too_large_for_its_codec_fails_at_the_record_that_makes_it_so() -> None:
    stage = staged(sf.sum("n"), seen=False, on_error=SKIP)
    large, small = sf.MsgPack.encode({"n": 2**63 - 1}), sf.MsgPack.encode({"n": 1})
    for value in (large, large, large, small):
        stage.feed((b"k", value, 0))
    assert stage.context.counters["skipped_records_total"] == 1
    stage.commit()
    assert _state(stage) == [(b"k", sf.MsgPack.encode(2**64 - 1))]


def _failure(stage: StageBench, rows: list[Any]) -> tuple[str, object] | None:
    try:
        if rows:
            stage.feed(*rows)
    except (ProcessingError, EncodeError, DecodeError) as error:
        return type(error).__name__, error.fields.get("offset")
    return None


def _listed(stage: StageBench) -> set[tuple[int, bytes]]:
    """The windows that wait for their end: start and key."""
    listed = stage.context.committed.reader(index_family("x")).scan()
    return {split_window(entry[8:])[::-1] for entry, _ in listed}


def _state(stage: StageBench) -> list[tuple[bytes, bytes]]:
    return list(stage.context.committed.reader("x").scan())


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([sf.sum, sf.mean]),
    st.booleans(),
    st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=20),
    st.data(),
)
def test_a_sum_of_floats_does_not_depend_on_batches(
    make: Any, waits: bool, numbers: list[float], data: st.DataObject
) -> None:
    """0.1 + (0.2 + 0.3) is not (0.1 + 0.2) + 0.3."""
    aggregate = make("n") if waits else replace(make("n"), may_wait=None)
    alone, cut = (staged(aggregate, seen=False, on_error=FAIL) for _ in range(2))
    rows = [(b"k", sf.MsgPack.encode({"n": number}), 0) for number in numbers]
    for row in rows:
        alone.feed(row)
    place = data.draw(st.integers(0, len(rows)))
    for part in (rows[:place], rows[place:]):
        if part:
            cut.feed(*part)
    for stage in (alone, cut):
        stage.commit()
    assert _state(alone) == _state(cut)
