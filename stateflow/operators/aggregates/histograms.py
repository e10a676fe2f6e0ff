"""Aggregates that keep how often each whole number occurred: histograms, and quantiles of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stateflow.errors import GraphError
from stateflow.operators.aggregates.aggregates import Aggregate, picked, reads_of_pick, same
from stateflow.operators.steps.fields import Pick


def histogram(of: Pick | None = None) -> Aggregate[Any, dict[int, int], dict[int, int]]:
    """How often each integer value occurred; one entry per distinct value. Merge: counts added."""
    return Aggregate(
        kind="histogram",
        initial=dict,
        add_many=picked(of, _tally),
        reads=reads_of_pick(of),
        merge=_merge_counts,
        result=same,
        type=dict[int, int],
        result_type=dict[int, int],
        subtract=_subtract_counts,
    )


def quantile(q: float, of: Pick | None = None) -> Aggregate[Any, dict[int, int], float | None]:
    """Exact quantile of integers by linear interpolation, as numpy and pandas do it; None without values.

    Kept as a histogram, so its size is the number of distinct values: round what is finer than you need.
    Raises ``GraphError`` for ``q`` outside 0 … 1.
    """
    if not 0 <= q <= 1:
        raise GraphError(f"A quantile of {q} does not exist.", action="Ask for one from 0 to 1: 0.95.")
    return Aggregate(
        kind="histogram",
        initial=dict,
        add_many=picked(of, _tally),
        reads=reads_of_pick(of),
        merge=_merge_counts,
        result=lambda counts: _quantile(counts, q),
        type=dict[int, int],
        result_type=float | None,
        subtract=_subtract_counts,
    )


def _tally(counts: dict[int, int], values: Iterable[Any]) -> dict[int, int]:
    for value in values:
        whole = int(value)
        if whole != value:
            raise ValueError(f"{value!r} is not a whole number: round it to what you need")
        counts[whole] = counts.get(whole, 0) + 1
    return counts


def _merge_counts(one: dict[int, int], two: dict[int, int]) -> dict[int, int]:
    return {value: one.get(value, 0) + two.get(value, 0) for value in one.keys() | two.keys()}


def _subtract_counts(whole: dict[int, int], part: dict[int, int]) -> dict[int, int]:
    left = {value: count - part.get(value, 0) for value, count in whole.items()}
    return {value: count for value, count in left.items() if count}


def _quantile(counts: Mapping[int, int], q: float) -> float | None:
    total = sum(counts.values())
    if not total:
        return None
    rank = q * (total - 1)
    below = int(rank)
    wanted = (below, min(below + 1, total - 1))
    ordered = sorted(counts)
    found: list[int] = []
    seen = 0
    for value in ordered:
        seen += counts[value]
        while len(found) < 2 and wanted[len(found)] < seen:
            found.append(value)
    return found[0] + (found[1] - found[0]) * (rank - below)
