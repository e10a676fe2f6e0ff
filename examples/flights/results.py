"""The application's final results, from its output topics and from its state, in the shape of the oracle's."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from compare import Comparison, compare, compare_ranking
from oracle import Answers
from shell import Shell
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


def read_state(shell: Shell, app: str, state_dir: Path) -> Results:
    """The same results as the local stores hold them, by ``stateflow state scan``."""

    def rows(store: str) -> list[dict[str, Any]]:
        where = ["--target", app, "--state-dir", str(state_dir), "--limit", "1000000"]
        (found,) = shell.json("state", "scan", store, *where)
        scanned: list[dict[str, Any]] = found["rows"]
        return scanned

    (ranking,) = (row["value"] for row in rows("top"))
    return Results(
        {(row["key"], row["window_start_ms"]): hour_of(row["value"]) for row in rows("hourly")},
        {row["key"]: row["value"] for row in rows("handed-on-delays")},
        [(tailnum, minutes) for minutes, tailnum in ranking],
    )


def hour_of(kept: dict[str, Any]) -> dict[str, Any]:
    """An hour's result from what the store keeps of it: flights, delay → how often, visibility."""
    delays = sorted((int(delay), times) for delay, times in kept["delays"].items())
    ordered = [delay for delay, times in delays for _ in range(times)]
    left = len(ordered)
    return {
        "flights": kept["flights"],
        "cancelled": kept["flights"] - left,
        "delay_mean_minutes": sum(ordered) / left if left else None,
        "delay_p95_minutes": ordered[(95 * left + 99) // 100 - 1] if left else None,
        "visibility_miles_min": kept["visibility"],
    }


def comparisons(right: Answers, found: Results, where: str) -> list[Comparison]:
    """Each set of results against the oracle's."""
    return [
        compare(f"airport hours in {where}", right.hourly, found.hourly),
        compare(f"aircraft in {where}", right.aircraft, found.aircraft),
        compare_ranking(f"places of the top ten in {where}", right.top, found.top),
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
