"""Pauses between attempts."""

from __future__ import annotations

from stateflow.backoff import pause_seconds


def test_pauses_double_up_to_the_longest_and_stay_there() -> None:
    assert [pause_seconds(failures, 0.5, 5.0) for failures in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_years_of_failures_do_not_overflow() -> None:
    assert pause_seconds(10**9, 0.2, 30.0) == 30.0
