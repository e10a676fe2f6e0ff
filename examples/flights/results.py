"""The application's final results, read from its output topics into the shape of the oracle's answers."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from compare import Comparison, compare, compare_ranking
from oracle import Answers
from topics import decoded, newest_by_key

HOURLY, AIRCRAFT, TOP = "flights-hourly", "flights-aircraft", "flights-top"


class Results(NamedTuple):
    """What the application says."""

    hourly: dict[tuple[str, int], dict[str, Any]]
    aircraft: dict[str, dict[str, Any]]
    top: list[tuple[str, int]]
    """Tail number and handed-on minutes."""


def read_results(brokers: str) -> Results:
    """The newest committed result of every key of the three output topics."""
    hours = [decoded(kept) for kept in newest_by_key(brokers, HOURLY).values()]
    aircraft = [decoded(kept) for kept in newest_by_key(brokers, AIRCRAFT).values()]
    rankings = [decoded(kept) for kept in newest_by_key(brokers, TOP).values()]
    return Results(
        {(row["origin"], row["hour_ms"]): row for row in hours},
        {row["tailnum"]: row for row in aircraft},
        [(tailnum, minutes) for ranking in rankings for tailnum, minutes in ranking],
    )


def comparisons(right: Answers, found: Results) -> list[Comparison]:
    """Each set of results against the oracle's."""
    return [
        compare("airport and hour", right.hourly, found.hourly),
        compare("aircraft", right.aircraft, found.aircraft),
        compare_ranking("place of the top ten", right.top, found.top),
    ]


def delay_by_month(found: Results) -> dict[str, dict[int, float]]:
    """Airport → month → mean departure delay, over the flights that left, from the application's hours."""
    minutes: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    flown: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for (origin, hour_ms), row in sorted(found.hourly.items()):
        if row["delay_mean_minutes"] is None:
            continue
        moment = datetime.fromtimestamp(hour_ms / 1000, UTC)
        if moment.year == 2013:  # the last departures of the year left after midnight UTC
            left = row["flights"] - row["cancelled"]
            minutes[origin][moment.month] += row["delay_mean_minutes"] * left
            flown[origin][moment.month] += left
    return {
        origin: {month: total / flown[origin][month] for month, total in row.items()}
        for origin, row in minutes.items()
    }
