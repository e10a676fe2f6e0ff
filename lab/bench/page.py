"""The kept results as tables for `docs/performance.md`, each between two comments that name it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stateflow.lab.bench.result import OURS
from stateflow.lab.bench.rows import ROWS, Row

Result = Mapping[str, Any]
_NAMES = {OURS: "this project", "kafka-streams": "Kafka Streams", "quix": "Quix Streams", "faust": "Faust"}
_QUIET_BELOW = 1.0
"""The load of the minute before a benchmark began; None where somebody has only said that it was quiet."""
_CLIENTS = {"read": "Java's consumer", "write": "Java's producer"}


def kept_results(folder: Path) -> dict[str, Result]:
    """The results that there are, by the names of their rows, in the page's order."""
    files = {row.name: folder / f"{row.name}.json" for row in ROWS}
    return {
        name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()
    }


def with_tables(page: str, results: Mapping[str, Result]) -> str:
    """The page with the tables of these results in their places."""
    tables = {
        "throughput": throughput_table(results),
        "waiting": waiting_table(results),
        "sizes": sizes_table(results),
    }
    for name, table in tables.items():
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        assert begin, f"the page has a place for the table {name}"
        assert end, f"and that place has an end: {name}"
        page = f"{before}{begin}\n{table}\n\n{end}{after}"
    return page


def throughput_table(results: Mapping[str, Result]) -> str:
    """A line for each work and peer: rates, CPU, memory and both ratios."""
    header = (
        "what",
        "date, load",
        "this project",
        "beside it",
        "times as fast (spread)",
        "aim",
        "times as cheap",
    )
    lines = []
    for row in ROWS:
        result = results.get(row.name, {})
        if "cpu_ratios" not in result:
            continue
        for peer in result["cpu_ratios"]:
            cells = (_what(row, result), _when(result), _side(result, OURS), _peer(result, peer))
            aim = row.aim_beside(peer)
            aims = [] if aim is None else [f"{aim:g}", *([row.aim_text] if row.aim_text else [])]
            lines.append(
                (*cells, _ratio(result["ratios"][peer]), "; ".join(aims), _ratio(result["cpu_ratios"][peer]))
            )
    return _table(header, lines)


def waiting_table(results: Mapping[str, Result]) -> str:
    """A line for each work that is waited for: latency, the cost of a low rate, starts."""
    header = ("what", "date, load", "side", "figures", "aim")
    lines = []
    for row in ROWS:
        result = results.get(row.name, {})
        if "cpu_ratios" in result or "sides" not in result:
            continue
        for side, figures in result["sides"].items():
            is_ours = side == OURS
            cells = (_what(row, result), _when(result)) if is_ours else ("", "")
            lines.append((*cells, _NAMES[side], _waited(figures), row.aim_text if is_ours else ""))
    return _table(header, lines)


def sizes_table(results: Mapping[str, Result]) -> str:
    """A line for each size of each work whose matrix was measured."""
    header = ("what", "size", "this project", "beside it", "times as fast", "times as cheap")
    lines = []
    for row in ROWS:
        result = results.get(row.name, {})
        for size, cell in result.get("cells", {}).items():
            for peer in cell["cpu_ratios"] or ("",):
                beside = _peer(cell, peer) if peer else ""
                rates = _ratio(cell["ratios"][peer]) if peer else ""
                costs = _ratio(cell["cpu_ratios"][peer]) if peer else ""
                lines.append((_what(row, result), size, _side(cell, OURS), beside, rates, costs))
    return _table(header, lines) if lines else "None is kept."


def _what(row: Row, result: Result) -> str:
    return f"{row.title}<br>`{result['command'].removeprefix('stateflow ')}`"


def _when(result: Result) -> str:
    load = result["machine"]["load_average"]
    return f"{result['date']}, {'quiet' if load is None or load < _QUIET_BELOW else load}"


def _peer(result: Result, peer: str) -> str:
    return f"{_CLIENTS.get(result.get('work', ''), _NAMES.get(peer, peer))}: {_side(result, peer)}"


def _side(result: Result, side: str) -> str:
    figures, cpu = result["sides"][side], result["cpu_seconds_per_million"][side]
    rate = f"{figures['records_per_second']:,}/s, {cpu:g} CPU s per million"
    return f"{rate}, {figures['rss_bytes_max'] / 1e6:,.0f} MB" if "rss_bytes_max" in figures else rate


def _ratio(found: Mapping[str, Any]) -> str:
    low, high = found.get("spread", (None, None))
    return f"{found['median']:g}" if low == high else f"{found['median']:g} ({low:g} to {high:g})"


def _waited(figures: Mapping[str, float]) -> str:
    if "p50_ms" in figures:
        percentiles = ", ".join(f"{figures[name]:g}" for name in ("p50_ms", "p95_ms", "p99_ms"))
        return f"p50, p95, p99: {percentiles} ms; {figures['cpu_microseconds_per_record']:g} µs of CPU per record"
    empty = f"{figures['empty_disk_seconds']:g} s, {figures['empty_disk_rss_bytes'] / 1e6:,.0f} MB"
    return f"disk as it was left: {figures['warm_seconds']:g} s; empty disk: {empty}"


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *lines))
