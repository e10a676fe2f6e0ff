"""The study as one HTML file: latencies over time, run by run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stateflow.compaction.pages.charts import Axis, Series, line_chart, span
from stateflow.compaction.pages.html import figure, page, percent, table
from stateflow.lab.linear_road.study import LATENCY_SECONDS_MAX, DriveResult, rated

_SHOWN = ((50, "half of the answers within"), (95, "95 % within"), (99, "99 % within"), (100, "all within"))


def road_page(results: Sequence[DriveResult]) -> str:
    """The whole page."""
    held = rated(results)
    rating = f"Rating: {held.drive.expressways:g}." if held else "No load was answered in time."
    told = f"<p>{rating} All answers right, the slowest within {LATENCY_SECONDS_MAX:g} s, counts.</p>"
    body = "<h1>Linear Road</h1>" + told + _runs(results) + "".join(map(_chart, results))
    return page("Linear Road", body)


def _runs(results: Sequence[DriveResult]) -> str:
    head = [
        "expressways",
        "reports",
        "answers",
        "missing",
        "wrong",
        "p50 s",
        "p99 s",
        "max s",
        "in 5 s",
        "CPU s/M",
    ]
    rows = [
        [
            result.drive.name,
            f"{result.reports:,}",
            f"{result.comparison.right:,}",
            str(result.comparison.missing),
            str(result.comparison.wrong),
            f"{result.latency_seconds(50):.2f}",
            f"{result.latency_seconds(99):.2f}",
            f"{result.latency_seconds(100):.2f}",
            percent(result.share_in_time),
            f"{result.cpu_seconds_per_million:.0f}",
        ]
        for result in results
    ]
    return table(head, rows)


def _chart(result: DriveResult) -> str:
    name = result.drive.name
    series = [Series(label, result.over_time(share), style) for style, (share, label) in enumerate(_SHOWN)]
    highest = [value for one in series for _, value in one.points] or [0.0]
    low, high = span([*highest, LATENCY_SECONDS_MAX])
    last = max((at for at, _ in result.latencies), default=1.0)
    chart = line_chart(
        name,
        series,
        Axis("seconds of the run", 0.0, max(1.0, last)),
        Axis("seconds until the answer", low, high),
        bound=("the benchmark's bound", LATENCY_SECONDS_MAX),
    )
    told = "; ".join(f"{what} at {at:.0f} s" for what, at in result.events)
    return f"<h2>{escape(name)}</h2>" + figure(chart, told or "Undisturbed.")
