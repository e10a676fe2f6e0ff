"""One HTML page about measured topics: how the log moves, what the restore time costs, what to set and why."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from stateflow.compaction.advice.recommendation import Outcome, Recommendation
from stateflow.compaction.pages.charts import Axis, Mark, Series, line_chart, scatter, span
from stateflow.compaction.pages.html import figure, page, table
from stateflow.compaction.pages.saw_tooth import saw_tooth_chart
from stateflow.compaction.sensing.effect import cautions
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.units import cores, duration, size, with_unit

_MB = 1e6


def topic_page(topics: Iterable[tuple[Measurement, Recommendation]]) -> str:
    """The page: a section per topic."""
    body = "".join(_section(measurement, found) for measurement, found in topics)
    return page("Compaction", body)


def _section(measurement: Measurement, found: Recommendation) -> str:
    verdict = (
        f"restores within {duration(found.objective.restore_within_seconds)} when set as below"
        if found.reachable
        else f"cannot be restored within {duration(found.objective.restore_within_seconds)} by compaction alone"
    )
    tiles = [
        (size(measurement.size_bytes), "log now"),
        (f"{measurement.live_keys:,}", "live keys"),
        (f"{measurement.dirty_share:.0%}", "of the records are superseded"),
        (f"{measurement.updates_per_second:,.0f}/s", f"updates ({measurement.rate_source})"),
    ]
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(text)}</span></div>" for value, text in tiles)
    return (
        f"<h1>{escape(measurement.topic)}</h1><p class='lead'>This topic {escape(verdict)}.</p>"
        f"<div class='tiles'>{boxes}</div>"
        + _list("Mind", cautions(measurement))
        + "<h2>Now against "
        + ("recommended" if found.reachable else "the closest")
        + "</h2>"
        + figure(*saw_tooth_chart(measurement, found))
        + _size(measurement)
        + _outcomes(found)
        + _curve(found)
        + _list("Why", found.reasons)
        + _settings(found)
        + _list("What keeps it safe", found.guards)
        + _list("What would change it", found.limits)
        + _alternatives(found)
        + _list("Not known", found.unknown)
    )


def _size(measurement: Measurement) -> str:
    if len(measurement.sizes) < 2:
        return ""
    points = [(sample.seconds, sample.size_bytes / _MB) for sample in measurement.sizes]
    chart = line_chart(
        "log size while watching",
        [Series("log", points)],
        Axis("seconds", 0, max(1.0, points[-1][0])),
        Axis("log, MB", *span([value for _, value in points])),
    )
    return figure(chart, "log size while watching")


def _outcomes(found: Recommendation) -> str:
    named = [("now", found.current), ("recommended" if found.reachable else "closest", found.best)]
    named += [("runner-up", found.runner_up)] if found.runner_up is not None else []
    head = ["", "log at most", "restore", "cleaner CPU", "roll CPU", "a pass every", "holds"]
    return "<h2>Predictions</h2>" + table(head, [[name, *_outcome(one)] for name, one in named])


def _outcome(one: Outcome) -> list[str]:
    if not math.isfinite(one.size_max_bytes):
        return ["unbounded", "unbounded", "none", "none", "never", "no"]
    low, high = duration(one.restore_seconds_low), duration(one.restore_seconds_high)
    return [
        size(one.size_max_bytes),
        f"{duration(one.restore_seconds)} ({low} to {high})",
        f"{cores(one.cleaner_cores)} ({cores(one.cleaner_cores_low)} to {cores(one.cleaner_cores_high)})",
        cores(one.roll_cores),
        duration(one.cycle_seconds),
        "yes" if one.meets else "no",
    ]


def _curve(found: Recommendation) -> str:
    points = [(one.restore_seconds, 100 * one.cores) for one in found.curve if one.cores > 0]
    if len(points) < 2:
        return ""
    mark = Mark(
        "recommended" if found.reachable else "closest",
        found.best.restore_seconds_stressed,
        max(100 * (found.best.cleaner_cores + found.best.roll_cores), points[-1][1]),
        1,
    )
    chart = scatter(
        "restore time against broker CPU",
        [mark],
        Axis("restore, s", *span([x for x, _ in points], logarithmic=True), logarithmic=True),
        Axis(
            "CPU, % of a core",
            *span([y for _, y in points], logarithmic=True),
            logarithmic=True,
        ),
        [Series("cheapest policies", points)],
    )
    caption = "the cheapest policy for every restore time: CPU of cleaning and of closing segments"
    return f"<h2>The trade-off</h2>{figure(chart, caption)}"


def _settings(found: Recommendation) -> str:
    if not found.changes:
        return "<h2>Set</h2><p>Nothing: the settings in force are the best.</p>"
    current = found.current.policy.to_config()
    rows = [
        [name, with_unit(name, current[name]), with_unit(name, value)]
        for name, value in sorted(found.changes.items())
    ]
    return "<h2>Set</h2>" + table(["setting", "now", "recommended"], rows)


def _alternatives(found: Recommendation) -> str:
    rows = [
        [one.name, one.action, duration(one.restore_seconds), "yes" if one.meets else "no", one.note]
        for one in found.alternatives
    ]
    return "<h2>Other ways</h2>" + table(["", "what to do", "restore", "holds", "note"], rows) if rows else ""


def _list(title: str, sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    return f"<h2>{title}</h2><ul>" + "".join(f"<li>{escape(one)}</li>" for one in sentences) + "</ul>"
