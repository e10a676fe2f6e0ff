"""Aggregates in windows whose merge or result fails: what is let go, and that all else goes on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import ProcessingError
from stateflow.testing import TestDriver

T0 = 1_700_000_040_000
MINUTE = timedelta(minutes=1)
NOTHING = object()
"""In the place of a value: no record."""
WINDOWS: dict[str, Any] = {
    "tumbling": (sf.Tumbling(MINUTE), sf.WindowedKey(sf.String, 60_000)),
    "hopping": (sf.Hopping(MINUTE, MINUTE), sf.WindowedKey(sf.String, 60_000)),
    "session": (sf.Session(MINUTE), sf.SessionKey(sf.String)),
    "sliding": (sf.Sliding(MINUTE), sf.WindowedKey(sf.String, 60_000)),
}


def told(
    kind: str,
    emit: Any,
    aggregate: Any,
    values: list[Any],
    *,
    on_error: Any = None,
    poll: int | None = None,
    is_told: bool = True,
) -> tuple[dict[Any, Any], int, dict[bytes, Any]]:
    """The newest result of each window, how many dead letters, the state before the end; a value each second."""
    app = sf.App("failing")
    window, key = WINDOWS[kind]
    source, out = app.topic("in", key=str, value=sf.Json), app.topic("out", key=key, value=sf.Json)
    dead = app.topic("dead", key=str, value=sf.Json)
    windowed = app.stream(source, co_partitioned=True).window(window, emit=emit)
    results = windowed.aggregate(aggregate, name="kept", on_error=on_error or sf.DeadLetter("dead"))
    if is_told:
        results.to(out)
    driver = TestDriver(app, partitions=1, poll_records=poll)
    rows = [("k", value, T0 + 1_000 * number) for number, value in enumerate(values)]
    driver.send_many(source, [row for row in rows if row[1] is not NOTHING])
    state = driver.state("kept", key="k")
    driver.end_input()
    newest = {
        ((record.key.start_ms - T0) // 1_000, (record.key.end_ms - T0) // 1_000): record.value
        for record in driver.rows(out)
    }
    told = {window: value for window, value in newest.items() if value is not None}
    return told, len(driver.rows(dead)), state


@pytest.mark.parametrize("poll", [1, 2, None])
@pytest.mark.parametrize("kind", ["tumbling", "session", "sliding"])
def test_a_record_that_cannot_be_merged_on_update_is_as_if_it_had_not_come(
    kind: str, poll: int | None
) -> None:
    results, letters, state = told(kind, "on_update", sf.min(), [3, "poison", 1, 4, "poison"], poll=poll)
    assert (results, 0, state) == told(kind, "on_update", sf.min(), [3, NOTHING, 1, 4], poll=poll)
    assert letters == 2


@pytest.mark.parametrize("poll", [1, 2, None])
def test_sliding_windows_that_cannot_be_merged_on_close_are_let_go_on_their_own(poll: int | None) -> None:
    results, letters, _ = told("sliding", "on_close", sf.min(), [3, 1, "poison"], poll=poll)
    assert results == {(-60, 0): 3, (-59, 1): 1, (1, 61): "poison"}
    assert letters == 2  # the one that ends with the poison, and the one that begins behind the 3


def inverse(total: int) -> int:
    return 100 // (total - 5)


INVERSE: Any = sf.fold(
    0, lambda total, value: total + value, merge=lambda one, two: one + two, result=inverse, type=int
)


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("poll", [1, None])
@pytest.mark.parametrize("kind", WINDOWS)
def test_a_result_that_fails_is_not_told_and_its_record_stays(kind: str, poll: int | None, emit: Any) -> None:
    results, letters, _ = told(kind, emit, INVERSE, [2, 3, 4], poll=poll)
    whole = {"session": (0, 2), "sliding": (-58, 2)}.get(kind, (0, 60))
    assert results[whole] == 25  # 2 + 3 + 4 − 5: none of them was left out
    assert 5 not in results.values()
    assert letters == {
        ("sliding", "on_close"): 1,
        ("sliding", "on_update"): 1,
    }.get((kind, emit), 1 if poll and emit == "on_update" else 0)


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_result_that_fails_at_the_end_stops_nothing(kind: str) -> None:
    results, letters, _ = told(kind, "on_close", INVERSE, [2, 3])
    assert letters == 1
    failing = {"session": (0, 1), "sliding": (-59, 1)}.get(kind, (0, 60))
    assert failing not in results


@pytest.mark.parametrize("kind", WINDOWS)
def test_a_result_that_fails_at_the_end_ends_the_task_where_the_policy_says_so(kind: str) -> None:
    with pytest.raises(ProcessingError, match=r"'kept'.*ZeroDivisionError"):
        told(kind, "on_close", INVERSE, [2, 3], on_error=sf.Fail())


@pytest.mark.parametrize("kind", WINDOWS)
def test_results_are_computed_only_where_they_are_told(kind: str) -> None:
    asked: list[int] = []

    def noted(total: int) -> int:
        asked.append(total)
        return total

    aggregate: Any = sf.fold(
        0, lambda total, value: total + value, merge=lambda one, two: one + two, result=noted, type=int
    )
    results, _, _ = told(kind, "on_close", aggregate, [1, 2, 4], poll=1)
    assert sorted(asked) == sorted(results.values())


@pytest.mark.parametrize("emit", ["on_close", "on_update"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_results_that_nobody_is_told_are_not_computed(kind: str, emit: Any) -> None:
    _, letters, state = told(kind, emit, INVERSE, [2, 3], poll=1, is_told=False)
    assert letters == 0
    assert state is not None
