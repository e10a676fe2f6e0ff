"""The demo's oracle, feed and comparison, on cases small enough to work out by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas
import pytest

FOLDER = Path(__file__).parents[3] / "examples" / "flights"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"flights_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


oracle, compare, feed = load("oracle"), load("compare"), load("feed")


def flight(
    clock: str,
    delay: int | None,
    late: int | None = 0,
    *,
    tail: str | None = "N1",
    origin: str = "JFK",
    number: int = 1,
) -> dict[str, Any]:
    """A row as the package has it: ``clock`` is New York's, a ``delay`` of None is cancelled."""
    date, time = clock.split()
    month, day = map(int, date.split("-"))
    hour, minute = map(int, time.split(":"))
    return {
        "year": 2013,
        "month": month,
        "day": day,
        "hour": hour,
        "minute": minute,
        "dep_time": None if delay is None else 1.0,
        "dep_delay": delay,
        "arr_delay": None if delay is None else late,
        "origin": origin,
        "carrier": "XX",
        "flight": number,
        "tailnum": tail,
    }


def answers(*flights: dict[str, Any], limit: int | None = None, visibility: float = 10.0) -> Any:
    weather = pandas.DataFrame(
        {"origin": ["JFK"], "time_hour": ["2013-01-01T10:00:00Z"], "visib": [visibility]}
    )
    return oracle.answers_for(oracle.prepared(pandas.DataFrame(flights), weather), limit)


TEN_UTC = 1357034400000  # 2013-01-01 10:00 UTC, 5 o'clock in New York


def test_hour_counts_delays_and_cancellations() -> None:
    found = answers(
        flight("1-1 5:00", 10, number=1),
        flight("1-1 5:30", 21, number=2),
        flight("1-1 5:40", None, number=3),
        visibility=2.5,
    )
    assert found.hourly == {
        ("JFK", TEN_UTC): {
            "flights": 3,
            "cancelled": 1,
            "delay_mean_minutes": 15.5,
            "delay_p95_minutes": 21,
            "visibility_miles_min": 2.5,
        }
    }


def test_a_delay_moves_a_flight_into_the_hour_in_which_it_left() -> None:
    found = answers(flight("1-1 5:50", 10), flight("1-1 5:50", 9, number=2))
    assert {key: row["flights"] for key, row in found.hourly.items()} == {
        ("JFK", TEN_UTC): 1,
        ("JFK", TEN_UTC + 3_600_000): 1,
    }


def test_an_hour_of_cancellations_has_no_delay() -> None:
    found = answers(flight("1-1 5:00", None), flight("1-1 6:00", None, origin="LGA"))
    assert [(row["delay_mean_minutes"], row["delay_p95_minutes"]) for row in found.hourly.values()] == [
        (None, None)
    ] * 2


def test_summer_time_is_taken_into_account() -> None:
    found = answers(flight("7-1 5:00", 0))
    assert list(found.hourly) == [("JFK", 1372669200000)]  # 09:00 UTC


@pytest.mark.parametrize(("total", "rank"), [(1, 1), (19, 19), (20, 19), (21, 20), (40, 38), (41, 39)])
def test_percentile_is_the_nearest_rank(total: int, rank: int) -> None:
    found = answers(*(flight("1-1 5:00", delay, number=delay) for delay in range(1, total + 1)))
    assert found.hourly[("JFK", TEN_UTC)]["delay_p95_minutes"] == rank


def test_lateness_is_handed_on_to_the_next_departure_only() -> None:
    found = answers(
        flight("1-1 5:00", 0, 16),
        flight("1-1 9:00", 30, 15),
        flight("1-1 12:00", 50, 40),
        flight("1-1 18:00", -3, 99),
    )
    assert found.aircraft == {
        "N1": {"late_arrivals": 2, "handed_on_minutes": 30, "handed_on_minutes_max": 30, "longest_chain": 1}
    }
    assert found.top == [("N1", 30)]


def test_a_cancelled_flight_does_not_break_a_chain_but_a_punctual_one_does() -> None:
    found = answers(
        flight("1-1 5:00", 0, 60),
        flight("1-1 9:00", 50, 60),
        flight("1-1 12:00", None),
        flight("1-1 15:00", 40, 60),
        flight("1-2 5:00", 0, 60),
        flight("1-2 9:00", 5, 0),
    )
    assert found.aircraft["N1"] == {
        "late_arrivals": 4,
        "handed_on_minutes": 95,
        "handed_on_minutes_max": 50,
        "longest_chain": 2,
    }


def test_an_unknown_arrival_and_an_unknown_aircraft_hand_on_nothing() -> None:
    found = answers(
        flight("1-1 5:00", 0, None),
        flight("1-1 9:00", 50, 60),
        flight("1-1 5:00", 0, 60, tail=None),
        flight("1-1 9:00", 50, 60, tail=None),
    )
    assert (found.aircraft, found.top) == ({}, [])


def test_ranking_breaks_ties_by_tail_number_and_stops_at_ten() -> None:
    late = [
        flight(f"1-1 {hour}:00", 7, 60, tail=f"N{plane:02}", number=plane)
        for plane in range(12, 0, -1)
        for hour in (5, 9)
    ]
    assert answers(*late).top == [(f"N{plane:02}", 7) for plane in range(1, 11)]


def test_a_slice_takes_the_first_flights_by_event_time() -> None:
    found = answers(flight("1-1 5:00", 300), flight("1-1 6:00", 0, number=2), limit=1)
    assert list(found.hourly) == [("JFK", TEN_UTC + 3_600_000)]


def test_feed_and_oracle_agree_on_the_order_of_real_flights() -> None:
    row = {
        "time_hour": "2013-01-01T10:00:00Z",
        "minute": "15",
        "dep_time": "517",
        "dep_delay": "2",
        "arr_delay": "NA",
        "tailnum": "N14228",
        "carrier": "UA",
        "flight": "1545",
        "origin": "EWR",
        "dest": "IAH",
    }
    sent = feed.departure(row, {("EWR", "2013-01-01T10:00:00Z"): 9.0}, {"N14228": "BOEING 737-824 (1999)"})
    assert feed.place_of(row) == (1357035420000, 1357035300000, "EWR", "UA", 1545)
    assert sent.event_ms == 1357035420000
    assert sent.key == b"N14228"
    assert b'"arrival_delay_minutes":null,"visibility_miles":9.0' in sent.value


def test_feed_places_a_cancelled_flight_at_its_schedule_and_keys_an_unknown_aircraft_by_flight() -> None:
    row = {
        "time_hour": "2013-01-01T10:00:00Z",
        "minute": "15",
        "dep_time": "",
        "dep_delay": "",
        "arr_delay": "",
        "tailnum": "",
        "carrier": "UA",
        "flight": "1545",
        "origin": "EWR",
        "dest": "IAH",
    }
    sent = feed.departure(row, {}, {})
    assert (sent.event_ms, sent.key) == (1357035300000, b"UA-1545")
    assert b'"tailnum":null' in sent.value
    assert b'"departed_ms":null' in sent.value


def test_comparison_finds_missing_extra_and_different_keys() -> None:
    right = {"a": {"n": 1}, "b": {"n": 2}, "c": {"n": 3}}
    found = compare.compare("counts", right, {"a": {"n": 1, "more": 0}, "b": {"n": 5}, "d": {"n": 4}})
    assert (found.expected, found.compared, found.mismatches, found.equal) == (3, 2, 3, False)
    assert found.examples == ["b: n is 5, should be 2.", "c is missing.", "d should not be there."]


def test_comparison_takes_a_missing_field_for_a_difference_even_when_it_should_be_null() -> None:
    assert compare.compare("x", {"a": {"n": None}}, {"a": {}}).mismatches == 1


def test_comparison_of_nothing_is_not_equal() -> None:
    assert not compare.compare("x", {}, {}).equal


def test_comparison_of_rankings_is_by_place() -> None:
    assert compare.compare_ranking("top", [("a", 2), ("b", 1)], [("a", 2), ("b", 1)]).equal
    assert compare.compare_ranking("top", [("a", 2), ("b", 1)], [("b", 1), ("a", 2)]).mismatches == 2
