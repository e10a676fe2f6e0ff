"""The study as one HTML file that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.pages.charts import Axis, Mark, Series, line_chart, scatter, span
from stateflow.compaction.pages.html import figure, page, percent, table
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.lab.compaction.result import CellFigures, LoopFigures, Study, mean_abs
from stateflow.lab.compaction.stock_page import stock_section

_MB = 1e6


def study_page(study: Study) -> str:
    """The whole page."""
    body = "".join(
        [
            _headline(study),
            _objectives(study),
            _trade_off(study),
            _loop(study),
            _saw_teeth(study),
            _accuracy(study),
            _trims(study),
            stock_section(study.stock),
            _method(study),
        ]
    )
    return page("Restore time against log compaction", body)


def _headline(study: Study) -> str:
    ratio = study.ratio_at_tightest()
    size = mean_abs(cell.size_error for cell in study.cells)
    cpu = mean_abs(cell.cpu_error for cell in study.cells)
    watched = next((loop for loop in study.loops if "watched" in loop.name), None)
    figures = [
        (
            "cleaner CPU of topic settings alone at the tightest objective, of what the best fixed setting takes",
            "not comparable" if ratio is None else f"{ratio:.0%}",
        ),
        *_best_way(study),
        (
            "of the time over the bound while the update rate tripled and fell back",
            "not run" if watched is None else f"{watched.share_over_bound:.1%}",
        ),
        ("mean error of the predicted largest log", "–" if size is None else f"{size:.1%}"),
        ("mean error of the predicted cleaner CPU", "–" if cpu is None else f"{cpu:.0%}"),
    ]
    tiles = "".join(f"<div><b>{value}</b><span>{escape(text)}</span></div>" for text, value in figures)
    return (
        "<h1>Restore time against log compaction</h1>"
        "<p class='lead'>How large a compacted changelog grows decides how long a restore takes; how hard "
        "the "
        "broker compacts decides what that costs. Six fixed settings, and the one a tuner picks for the "
        "restore "
        f"time you name, on Kafka {escape(study.broker)}.</p><div class='tiles'>{tiles}</div>"
    )


def _best_way(study: Study) -> list[tuple[str, str]]:
    """The way of ours that costs the broker least at the tightest objective that the grid holds."""
    comparable = [one for one in study.objectives if one.grid_cleaner_cores]
    if not comparable:
        return []
    tightest = min(comparable, key=lambda one: one.factor)
    way = next((way for way in study.ways(tightest) if way.held), None)
    if way is None or not tightest.grid_cleaner_cores:
        return []
    share = way.cleaner_cores / tightest.grid_cleaner_cores
    return [(f"of it with the way that costs the broker least there: {way.name}", f"{share:.1%}")]


def _ways(study: Study) -> str:
    """Each objective's ways side by side, the broker's CPU as a whole beside its cleaner's."""
    rows = [
        [
            one.setup,
            f"{one.factor:g} × live",
            way.name,
            percent(way.cleaner_cores),
            "–" if not one.grid_cleaner_cores else f"{way.cleaner_cores / one.grid_cleaner_cores:.2f}",
            percent(way.broker_cores),
            "–" if not one.grid_broker_cores else f"{way.broker_cores / one.grid_broker_cores:.2f}",
            "yes" if way.held else "no",
        ]
        for one in study.objectives
        for way in study.ways(one)
    ]
    head = [
        "workload",
        "log at most",
        "way",
        "cleaner CPU",
        "of the fixed",
        "broker CPU",
        "of the fixed",
        "held",
    ]
    return "<h3>Ways to hold it</h3><p>The broker's CPU includes taking the records in.</p>" + table(
        head, rows
    )


def _objectives(study: Study) -> str:
    rows = [
        [
            one.setup,
            f"{one.restore_seconds:.2f} s",
            f"{one.bound_bytes / _MB:.1f} MB",
            one.grid_best or "none holds it",
            percent(one.grid_cleaner_cores),
            percent(one.ours_cleaner_cores),
            "–" if one.ratio is None else f"{one.ratio:.2f}",
            percent(one.with_buffer_cleaner_cores),
            "–" if one.ratio_with_buffer is None else f"{one.ratio_with_buffer:.2f}",
            "yes" if one.held else "no",
        ]
        for one in study.objectives
    ]
    head = [
        "workload",
        "restore within",
        "log at most",
        "best fixed setting",
        "its cleaner CPU",
        "tuned",
        "ratio",
        "+ fitting buffer",
        "ratio",
        "held",
    ]
    return (
        "<h2>What the same restore time costs</h2>"
        "<p>For every objective, the fixed setting that holds it with the least cleaner CPU, and the "
        "setting that was "
        "recommended for it, then measured. CPU is of one core. The last ratio adds a dedupe buffer that "
        "fits the topic: "
        "it is zero-filled at every pass, but a setting of the whole broker.</p>"
        + table(head, rows)
        + _ways(study)
    )


def _trade_off(study: Study) -> str:
    parts = ["<h2>The trade-off</h2>"]
    for setup in _setups(study.cells):
        cells = [cell for cell in study.cells if cell.setup == setup]
        marks = [
            Mark(cell.name, cell.size_max_bytes / _MB, 100 * cell.cleaner_cores, 1 if cell.ours else 0)
            for cell in cells
        ]
        curve = _curve(study, cells)
        xs = [mark.x for mark in marks] + [x for x, _ in curve]
        ys = [mark.y for mark in marks] + [y for _, y in curve]
        x = Axis("largest log, MB", *span(xs, logarithmic=True), logarithmic=True)
        y = Axis("cleaner CPU, % of a core", *span(ys, logarithmic=True), logarithmic=True)
        series = [Series("closed form, segments closed by size", curve, 2)] if curve else []
        parts.append(figure(scatter(f"{setup}: largest log against cleaner CPU", marks, x, y, series), setup))
    return "".join(parts)


def _curve(study: Study, cells: Sequence[CellFigures]) -> list[tuple[float, float]]:
    """What the closed form says of one closed segment per pass, for segments of many lengths."""
    first = cells[0]
    if not first.setup.startswith("fold-left"):
        return []
    rate = study.options.updates_per_second
    load = Workload(
        int(first.setup.rsplit("-", 1)[1][:-1]), first.live_end, rate, first.record_bytes, first.record_bytes
    )
    found = []
    for step in range(60):
        policy = Policy(
            segment_ms=round(60 * 1.12**step),
            segment_index_bytes=65_536,
            dirty_ratio=0.001,
            file_delete_delay_ms=1000,
        )
        outcome = predict(load, policy, study.cleaner, study.calibration.costs)
        if not outcome.saturated:
            found.append((outcome.size_max_bytes / _MB, 100 * outcome.cleaner_cores))
    largest = max(cell.size_max_bytes for cell in cells) / _MB
    return [point for point in found if point[0] <= 1.1 * largest]


def _loop(study: Study) -> str:
    if not study.loops:
        return ""
    rows = [
        [
            _loop_name(loop),
            f"{loop.share_over_bound:.1%}",
            f"{loop.size_max_bytes / loop.bound_bytes:.2f}",
            percent(loop.cleaner_cores),
            str(loop.changes),
        ]
        for loop in study.loops
    ]
    bound = study.loops[0].bound_bytes / _MB
    series = [
        Series(_loop_name(loop), [(at, size / _MB) for at, size in loop.sizes], index)
        for index, loop in enumerate(study.loops)
    ]
    top = max(max(value for _, value in one.points) for one in series)
    chart = line_chart(
        "log size while the update rate triples in the middle third",
        series,
        Axis("seconds", 0, study.options.loop_seconds),
        Axis("log, MB", *span([top, bound])),
        ("bound", bound),
    )
    head = ["settings", "time over the bound", "peak / bound", "cleaner CPU", "changes"]
    return (
        "<h2>When the load changes</h2><p>The update rate triples in the middle third and falls back. One "
        "run is "
        "watched by the tuner, the others keep their settings.</p>"
        + figure(chart, "log size over time")
        + table(head, rows)
        + _decisions(study.loops)
    )


def _decisions(loops: Sequence[LoopFigures]) -> str:
    rows = []
    for loop in loops:
        start = loop.decisions[0].at_ms if loop.decisions else 0
        for decision in loop.decisions:
            if decision.action == "change":
                changes = ", ".join(f"{name}={value}" for name, value in sorted(decision.changes.items()))
                rate = f"{decision.updates_per_second:,.0f}/s"
                rows.append([f"{(decision.at_ms - start) / 1000:.1f} s", decision.reason, rate, changes])
    if not rows:
        return ""
    return "<h3>What the loop decided</h3>" + table(["after", "because", "update rate", "set"], rows)


def _loop_name(loop: LoopFigures) -> str:
    return loop.name.removeprefix("loop ")


def _saw_teeth(study: Study) -> str:
    parts = ["<h2>The saw-teeth</h2><p>Log size over time, cell by cell, on one scale per workload.</p>"]
    for setup in _setups(study.cells):
        cells = [cell for cell in study.cells if cell.setup == setup]
        top = max(cell.size_max_bytes for cell in cells) / _MB
        parts.append(f"<h3>{escape(setup)}</h3><div class='grid'>")
        for cell in cells:
            chart = line_chart(
                f"{setup} {cell.name}",
                [Series(cell.name, [(at, size / _MB) for at, size in cell.sizes], 1 if cell.ours else 0)],
                Axis("seconds", 0, study.options.seconds),
                Axis("log, MB", 0, top * 1.08),
            )
            parts.append(figure(chart, f"{cell.name}: {percent(cell.cleaner_cores)} of a core"))
        parts.append("</div>")
    return "".join(parts)


def _accuracy(study: Study) -> str:
    rows = [
        [
            cell.setup,
            cell.name + (" (disturbed)" if cell.disturbed else ""),
            f"{cell.size_max_bytes / _MB:.2f}",
            f"{cell.simulated_size_max_bytes / _MB:.2f} ({cell.size_error:+.1%})",
            "–" if cell.closed_size_max_bytes is None else f"{cell.closed_size_max_bytes / _MB:.2f}",
            percent(cell.cleaner_cores),
            f"{percent(cell.simulated_cleaner_cores)} ({cell.cpu_error:+.0%})",
            percent(cell.closed_cleaner_cores),
            f"{cell.restore_seconds:.2f} ± {cell.restore_spread / 2:.0%}",
        ]
        for cell in study.cells
    ]
    head = [
        "workload",
        "cell",
        "largest log, MB",
        "simulated",
        "closed form",
        "cleaner CPU",
        "simulated",
        "closed form",
        "restore, s",
    ]
    note = (
        "<p>A cell is disturbed when its cleaner waited for a core that other work on the machine held, or the "
        "producer fell behind: it then cleaned less often than its settings say. It is, too, when the machine was "
        "faster or slower by more than 15 % than while costs were calibrated. Delete its file, and the study "
        "measures it again.</p>"
    )
    return "<h2>Measured and predicted</h2>" + note + table(head, rows)


def _trims(study: Study) -> str:
    if not study.trims:
        return ""
    rows = [
        [
            trim.setup,
            f"{trim.result.name}, {trim.factor:g} × live",
            f"{trim.result.size_max_bytes / _MB:.2f}",
            percent(trim.result.cleaner_cores),
            percent(trim.result.broker_cores),
            percent(trim.result.client_cores),
            f"{trim.result.writes_per_update:.2f}",
            f"{trim.result.restore_seconds:.2f}",
        ]
        for trim in study.trims
    ]
    head = [
        "workload",
        "policy",
        "largest log, MB",
        "cleaner CPU",
        "broker CPU",
        "writer's CPU",
        "writes per update",
        "restore, s",
    ]
    return (
        "<h2>Without the cleaner</h2><p>Bounding the log by trimming it instead: behind an image of the "
        "state, or "
        "behind keys that are written again before they fall off the end. The work moves from the broker "
        "to the "
        "writer, whose CPU here includes producing.</p>" + table(head, rows)
    )


def _method(study: Study) -> str:
    options, costs, cleaner = study.options, study.calibration.costs, study.cleaner
    slow = [cell.slowness for cell in study.cells]
    slowness = f"{min(slow):.0%} to {max(slow):.0%}" if slow else "–"
    uncorrected = f"{mean_abs(cell.cpu_error_uncorrected for cell in study.cells) or 0:.0%}"
    per_step = ", ".join(f"{step} {cost}" for step, cost in costs.told(cleaner))
    errors = ", ".join(f"{name} {error:+.0%}" for name, error in study.calibration.errors.items())
    told = [
        f"{options.keys:,} keys, Zipf-distributed, {options.updates_per_second:,.0f} updates/s of 100 to "
        f"1,000 bytes; "
        f"every cell runs {options.seconds:g} s, of which the first {options.warm_seconds:g} s do not count; "
        f"{options.repeats} run(s) each.",
        "Objectives are told as a log of so many times the live records. In retain-all these are what the log must "
        "hold when a window closes, whatever the cleaner does: its elements, and a tombstone for each.",
        f"Broker: one node, {cleaner.threads} cleaner thread(s), backoff {cleaner.backoff_ms} ms, "
        f"dedupe buffer {cleaner.dedupe_buffer_bytes >> 20} MiB.",
        "Log size by DescribeLogDirs every 0.1 s; CPU per thread from the kernel; a restore reads the "
        "frozen log to "
        "a fixed target and keeps the newest record of every key; the median is shown with half the spread.",
        f"Costs calibrated first: {per_step} (runs that they were fitted to: {errors}).",
        "Predictions use these costs and nothing that the cells measured, except restore times, whose rate is "
        "learnt from the fixed settings and tested on the tuned ones, and how fast the machine was: the CPU time "
        f"of a loop that is always the same, {slowness} of what it was during calibration, of which "
        f"passes feel the square root. Uncorrected, predicted cleaner CPU is {uncorrected} off on average.",
    ]
    return "<h2>How it was measured</h2><ul>" + "".join(f"<li>{escape(one)}</li>" for one in told) + "</ul>"


def _setups(cells: Sequence[CellFigures]) -> Iterator[str]:
    yield from dict.fromkeys(cell.setup for cell in cells)
