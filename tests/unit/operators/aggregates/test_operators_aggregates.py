"""Every aggregate against a plain computation, and its merge against folding the whole."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import GraphError

Numbers = st.lists(st.integers(-1000, 1000), max_size=40)


def folded(aggregate: sf.Aggregate[Any, Any, Any], *parts: list[Any]) -> Any:
    """Fold part after part, through bytes in between as a store would."""
    codec = aggregate.codec()
    accumulator = aggregate.initial()
    for part in parts:
        accumulator = (
            codec.decode(codec.encode(aggregate.add_many(accumulator, part))) if part else accumulator
        )
    return accumulator


def top_three(values: list[int]) -> list[list[int]]:
    return [[value, value] for value in sorted(set(values), reverse=True)[:3]]


KINDS: dict[str, tuple[sf.Aggregate[Any, Any, Any], Any]] = {
    "count": (sf.count(), len),
    "sum": (sf.sum(), sum),
    "min": (sf.min(), lambda values: min(values, default=None)),
    "max": (sf.max(), lambda values: max(values, default=None)),
    "mean": (sf.mean(), lambda values: statistics.fmean(values) if values else None),
    "first": (sf.first(), lambda values: values[0] if values else None),
    "last": (sf.last(), lambda values: values[-1] if values else None),
    "collect": (sf.collect(limit=5), lambda values: values[:5]),
    "reduce": (sf.reduce(lambda one, two: one + two), lambda values: sum(values) if values else None),
    "histogram": (sf.histogram(), lambda values: {value: values.count(value) for value in values}),
    "quantile": (sf.quantile(0.95), lambda values: float(np.quantile(values, 0.95)) if values else None),
    "top_k": (sf.top_k(3, by=lambda v: v, item=lambda v: v), top_three),
    "fold": (sf.fold(0, lambda total, value: total + value, merge=lambda one, two: one + two), sum),
    "combined": (
        sf.fold(
            int, lambda total, value: total + value, merge=int.__add__, result=lambda total: {"total": total}
        ),
        lambda values: {"total": sum(values)},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@given(one=Numbers, two=Numbers)
def test_result_and_merge(kind: str, one: list[int], two: list[int]) -> None:
    aggregate, expected = KINDS[kind]
    result = aggregate.result(folded(aggregate, one, two))
    assert result == (
        pytest.approx(expected(one + two)) if kind in ("mean", "quantile") else expected(one + two)
    )
    if one and two:
        assert aggregate.merge is not None
        merged = aggregate.merge(folded(aggregate, one), folded(aggregate, two))
        assert aggregate.result(merged) == (pytest.approx(result) if kind == "mean" else result)


def test_none_is_left_out_where_a_part_is_picked() -> None:
    rows = [{"delay": 4}, {"delay": None}, {"delay": 8}]
    assert folded(sf.count("delay"), rows) == 2
    assert folded(sf.count(), rows) == 3
    assert folded(sf.sum("delay"), rows) == 12
    assert sf.mean("delay").result(folded(sf.mean("delay"), rows)) == 6
    assert folded(sf.min("delay"), rows) == 4


def test_several_at_once_give_one_dict() -> None:
    from stateflow.operators.aggregates.combined import combined

    several = combined(
        {"n": sf.count(), "mean": sf.mean("d"), "p95": sf.quantile(0.95, "d"), "top": sf.max("d")}
    )
    rows = [{"d": value} for value in range(101)]
    expected = {"n": 101, "mean": 50, "p95": 95, "top": 100}
    assert several.result(folded(several, rows[:40], rows[40:])) == expected
    assert several.merge is not None
    assert several.result(several.merge(folded(several, rows[:40]), folded(several, rows[40:]))) == expected
    assert several.codec().describe()["schema"]["$defs"]["Aggregates"]["properties"].keys() == {
        "n",
        "mean",
        "p95",
        "top",
    }


def test_several_cannot_be_merged_when_one_cannot() -> None:
    from stateflow.operators.aggregates.combined import combined

    assert combined({"n": sf.count(), "own": sf.fold(0, lambda a, v: a + v)}).merge is None
    with pytest.raises(GraphError, match="codec of their own"):
        combined({"own": sf.fold(0, lambda a, v: a + v, type=sf.Integer)})


def test_a_running_total_replaces_its_earlier_score_in_top_k() -> None:
    top = sf.top_k(2, by="n", item="name")
    rows = [("a", 1), ("b", 2), ("c", 3), ("a", 9), ("b", 9)]
    kept = folded(top, [{"name": name, "n": n} for name, n in rows])
    assert top.result(kept) == [["a", 9], ["b", 9]]


@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abcd")), max_size=12))
def test_top_k_cuts_after_each_value(k: int, values: list[tuple[int, str]]) -> None:
    """Whatever is cut away does not come back when a score falls: batches would show."""
    top = sf.top_k(k, by=lambda value: value[0], item=lambda value: value[1])
    kept: dict[str, int] = {}
    for score, item in values:
        ranked = sorted((kept | {item: score}).items(), key=lambda entry: (-entry[1], entry[0]))
        kept = dict(ranked[:k])
    expected = [(score, item) for item, score in kept.items()]
    assert folded(top, *([value] for value in values)) == folded(top, values) == expected


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(GraphError, match="shared by all keys"):
        sf.fold({}, lambda a, _v: a)
    with pytest.raises(GraphError, match="does not exist"):
        sf.quantile(95)
    with pytest.raises(ValueError, match="whole number"):
        folded(sf.quantile(0.5), [1.5])
