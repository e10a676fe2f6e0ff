"""The study of recovery as one HTML file: how long each way of coming back takes, against interval, load and degree."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from stateflow.compaction.pages.charts import Axis, Series, line_chart, span
from stateflow.compaction.pages.html import figure, page, table
from stateflow.lab.recovery.failures import FailureResult
from stateflow.lab.recovery.study import RecoveryFindings

_BEFORE_SECONDS = 4.0
"""What is shown of the time before the kill."""


def recovery_page(found: RecoveryFindings) -> str:
    """The whole page."""
    parts = [
        "<h1>Recovery</h1>",
        "<p>A windowed word count loses its worker and its disk while the feed goes on. Recovered is when all tasks run"
        f" and no more input waits than before. Counts that differ from the right ones: {found.different}.</p>",
        "<h2>Ways of coming back</h2>",
        _failures(found.modes),
        _behind(found.modes),
        "<h2>Interval between images, and load</h2>",
        _failures(found.by_interval),
        _by_interval(found.by_interval),
        "<h2>Several jobs at one partition</h2>",
        _degrees(found),
        "<h2>What keeping state costs while nothing fails</h2>",
        _overhead(found),
    ]
    return page("Recovery", "".join(parts))


def _failures(results: Sequence[FailureResult]) -> str:
    head = [
        "kept as",
        "image every s",
        "lines/s",
        "running after s",
        "recovered after s",
        "behind, p95 s",
        "different",
    ]
    rows = [
        [
            result.failure.mode,
            f"{result.failure.keeping.image_seconds or '–'}",
            f"{result.failure.rate:,}",
            f"{result.running_seconds:.1f}",
            f"{result.recovered_seconds:.1f}",
            f"{result.behind_seconds_p95:.2f}",
            str(result.different),
        ]
        for result in results
    ]
    return table(head, rows)


def _behind(results: Sequence[FailureResult]) -> str:
    series = [
        Series(result.failure.mode, [row for row in result.behind if row[0] > -_BEFORE_SECONDS], style)
        for style, result in enumerate(results)
    ]
    points = [point for one in series for point in one.points] or [(0.0, 0.0)]
    low, high = span([behind for _, behind in points])
    chart = line_chart(
        "Seconds of the feed that are not counted yet",
        series,
        Axis("seconds since the kill", -_BEFORE_SECONDS, max(1.0, *(at for at, _ in points))),
        Axis("seconds behind", low, high),
    )
    return figure(chart, "A source replay begins with nothing: it is behind by all that was ever sent.")


def _by_interval(results: Sequence[FailureResult]) -> str:
    rates = sorted({result.failure.rate for result in results})
    series = [
        Series(
            f"{rate:,} lines/s",
            sorted(
                (result.failure.keeping.image_seconds or 0.0, result.recovered_seconds)
                for result in results
                if result.failure.rate == rate
            ),
            style,
        )
        for style, rate in enumerate(rates)
    ]
    points = [point for one in series for point in one.points] or [(1.0, 0.0)]
    low, high = span([0.0, *(seconds for _, seconds in points)])
    chart = line_chart(
        "Recovery against the interval between images",
        series,
        Axis("seconds between images", 0.0, max(at for at, _ in points)),
        Axis("seconds until recovered", low, high),
    )
    return figure(chart, "The tail behind the newest image grows with the interval and the load.")


def _degrees(found: RecoveryFindings) -> str:
    rows = [["in order", f"{found.parallel.seconds_in_order:.2f}"]]
    rows += [
        [f"{degree} at a time", f"{took:.2f}"] for degree, took in found.parallel.seconds_by_degree.items()
    ]
    told = "every byte equal" if found.parallel.equal else "THE RESULTS DIFFER"
    return table(["how", "seconds"], rows) + f"<p>{found.parallel.records:,} records, {escape(told)}.</p>"


def _overhead(found: RecoveryFindings) -> str:
    head = ["kept as", "words that there are", "words/s", "CPU s per million", "different"]
    rows = [
        [
            each.mode,
            f"{each.words:,}",
            f"{each.words_per_second:,}",
            f"{each.cpu_seconds_per_million:.1f}",
            str(each.different),
        ]
        for each in found.overhead
    ]
    return table(head, rows)
