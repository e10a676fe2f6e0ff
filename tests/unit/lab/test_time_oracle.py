"""The study's oracle by hand: what is late, when windows close, what is due first, what has expired."""

from __future__ import annotations

import random

import pytest

from stateflow.lab.time.logs import LogShape, Row, random_log
from stateflow.lab.time.oracle import Computation, Place, aggregated, marked, with_ttl
from stateflow.lab.time.programs import Expected
from stateflow.lab.time.study import case_of, different_places
from stateflow.lab.time.timed import IDLE_MS, LOOK_MS, TTL_MS, ForgetfulOracle, SessionsOracle, said


def rows(*times_ms: int, key: str = "a", partition: int = 0) -> list[Row]:
    return [Row(partition, key, 1, when_ms) for when_ms in times_ms]


def test_a_mark_is_the_largest_time_of_the_partition_so_far() -> None:
    log = [*rows(5, 3), *rows(1, 2, partition=1), Row(0, "a", None, 9), *rows(4)]
    assert [mark_ms for _, mark_ms in marked(log)] == [5, 5, 1, 2, 9, 9]


def test_a_record_is_late_from_the_moment_at_which_its_windows_grace_is_over() -> None:
    wanted = Computation("count", size_ms=10, grace_ms=5)
    assert aggregated(rows(0, 14, 1), wanted) == ({Place("a", 0): [1, 2], Place("a", 10): [1]}, {})
    assert aggregated(rows(0, 15, 1), wanted) == (
        {Place("a", 0): [1], Place("a", 10): [1]},
        {Place("a"): [1]},
    )


def test_another_partitions_time_makes_nothing_late() -> None:
    log = [*rows(100, partition=1), *rows(0)]
    assert aggregated(log, Computation("count", size_ms=10))[1] == {}


def test_on_close_a_window_has_one_result_once_every_partition_is_past_it() -> None:
    wanted = Computation("sum", size_ms=10, on_close=True)
    log = [*rows(0, 1, 25), *rows(10, partition=1)]
    assert aggregated(log, wanted) == ({Place("a", 0): [2]}, {})


def test_an_aggregate_begins_anew_once_its_time_to_live_is_over() -> None:
    assert with_ttl(rows(0, 9, 18), "count", 10) == {Place("a"): [1, 2, 3]}
    assert with_ttl(rows(0, 10, 12), "count", 10) == {Place("a"): [1, 1, 2]}


def test_what_is_due_fires_before_the_record_that_makes_it_due() -> None:
    log = [Row(0, "a", 1, 0), Row(0, "b", 1, IDLE_MS - 1), Row(0, "a", 1, IDLE_MS)]
    assert said(SessionsOracle().run(log, 0))[Place("a")] == [
        ["record", 0, 1],
        ["idle", IDLE_MS, 1],
        ["record", IDLE_MS, 1],
    ]


def test_a_timer_sees_what_expires_only_after_it_is_due() -> None:
    log = [Row(0, "a", 3, 0), Row(0, "b", 1, 10 * TTL_MS)]
    assert said(ForgetfulOracle().run(log, 0))[Place("a")] == [
        ["record", 0, None, []],
        ["look", LOOK_MS, 3, [[0, 3]]],
    ]


def test_a_timer_set_into_the_past_sees_what_its_record_saw() -> None:
    log = [Row(0, "a", 3, 0), Row(0, "b", 1, TTL_MS), Row(0, "a", 4, 1), Row(0, "b", 1, TTL_MS)]
    assert said(ForgetfulOracle().run(log, 0))[Place("a")] == [
        ["record", 0, None, []],
        ["look", LOOK_MS, 3, [[0, 3]]],
        ["record", 1, None, []],
        ["look", 1 + LOOK_MS, 4, [[1, 4]]],
    ]


def test_coalesced_results_are_some_of_the_updates_and_the_last() -> None:
    place = Place("a")
    expected = Expected("count", {place: [1, 2, 3]}, "coalesced")
    for good in ([1, 2, 3], [2, 3], [3]):
        assert not different_places(expected, {place: good})
    for bad in ([], [1, 2], [3, 2], [2, 1, 3], [1, 1, 3], [4]):
        assert different_places(expected, {place: list(bad)}) == [place]
    assert different_places(expected._replace(rule="each"), {place: [2, 3]}) == [place]
    assert not different_places(expected._replace(rule="newest"), {place: [2, 1, 3]})
    assert not different_places(expected._replace(rule="bag"), {place: [2, 1, 3]})
    assert different_places(expected._replace(rule="bag"), {place: [1, 3]}) == [place]
    assert different_places(expected, {place: [3], Place("b"): [1]}) == [Place("b")]


def test_the_same_seed_is_the_same_case() -> None:
    assert case_of(7, 3) == case_of(7, 3)
    assert case_of(7, 3) != case_of(8, 3)


@pytest.mark.parametrize("by_key", [False, True])
def test_logs_to_compare_have_no_tombstone_ahead_of_its_partition(by_key: bool) -> None:
    shape = LogShape(partitions=3, empty=0.5, empty_ahead=False, rows=200, by_key=by_key)
    log = random_log(random.Random(1), shape)
    newest_ms: dict[int, int] = {}
    for row in log:
        if row.value is None:
            assert row.timestamp_ms <= newest_ms[row.partition]
        else:
            newest_ms[row.partition] = max(newest_ms.get(row.partition, 0), row.timestamp_ms)
    assert any(row.value is None for row in log)
