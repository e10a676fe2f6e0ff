"""Results that are kept, as tables and as a plot; and docs/performance.md shows those that the checkout has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from stateflow.errors import ConfigError
from stateflow.lab.bench.band import compared, read_bands, updated
from stateflow.lab.bench.matrix import cells
from stateflow.lab.bench.page import kept_results, sizes_table, throughput_table, waiting_table, with_tables
from stateflow.lab.bench.plot import Bar, bars, svg
from stateflow.lab.bench.recording import described, machine_now, write_result
from stateflow.lab.bench.result import OURS
from stateflow.lab.bench.rows import ROWS
from stateflow.lab.bench.workload import of
from stateflow.lab.commands.bench import command

ROOT = Path(__file__).resolve().parents[3]
MACHINE = {"load_average": 0.2, "pace_microseconds": 1_000}


def throughput(cpu: float = 2.0, ratio: float = 3.0) -> dict[str, Any]:
    side = {"records_per_second": 1_000_000, "rss_bytes_max": 200_000_000}
    return {
        "command": "stateflow bench count --vs kafka-streams",
        "date": "2026-11-24",
        "machine": MACHINE,
        "work": "count",
        "workload": {"records": 10, "value_bytes": 100, "keys": 5, "partitions": 4},
        "setups": {OURS: {"version": "1.2.3"}},
        "sides": {OURS: side, "kafka-streams": side},
        "ratios": {"kafka-streams": {"median": ratio, "spread": [ratio - 1, ratio + 1]}},
        "cpu_ratios": {"kafka-streams": {"median": 4.0, "spread": [4.0, 4.0]}},
        "cpu_seconds_per_million": {OURS: cpu, "kafka-streams": 8.0},
        "same_result": True,
        "mode": "native",
    }


def test_the_page_shows_the_results_that_are_kept() -> None:
    results = kept_results(ROOT / "benchmarks" / "results")
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert page == with_tables(page, results), "run `python benchmarks/page.py`"
    plot = (ROOT / "docs" / "img" / "performance.svg").read_text(encoding="utf-8")
    assert plot == svg(bars(results)), "run `python benchmarks/page.py`"


def test_every_kept_file_has_a_row_and_every_row_a_command_that_is_there() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")} <= set(names)
    for row in ROWS:
        command.make_context("bench", row.words)


def test_a_row_of_rates_has_both_ratios_and_the_aim() -> None:
    (_, _, line) = throughput_table({"count": throughput()}).splitlines()
    assert "| 3 (2 to 4) | 5 | 4 |" in line
    assert "1,000,000/s, 2 CPU s per million, 200 MB" in line
    assert "2026-11-24, quiet" in line
    busy = {**throughput(), "machine": {**MACHINE, "load_average": 7.5}}
    assert "2026-11-24, 7.5" in throughput_table({"count": busy})


def test_works_that_are_waited_for_have_a_line_for_each_side() -> None:
    percentiles = {"p50_ms": 46.0, "p95_ms": 80, "p99_ms": 99, "cpu_microseconds_per_record": 222}
    latency = {**throughput(), "sides": {OURS: percentiles, "kafka-streams": percentiles}}
    del latency["cpu_ratios"]
    starts = {"warm_seconds": 0.8, "empty_disk_seconds": 2.5, "empty_disk_rss_bytes": 300_000_000}
    restart = {**latency, "sides": {OURS: starts}}
    lines = waiting_table({"latency": latency, "restart": restart}).splitlines()
    assert len(lines) == 5
    assert "46, 80, 99 ms; 222 µs of CPU per record" in lines[2]
    assert "disk as it was left: 0.8 s; empty disk: 2.5 s, 300 MB" in lines[4]


def test_a_matrix_has_a_line_for_each_size() -> None:
    load = of("count", 1_000, 50)
    found = cells(load)
    assert found["as given"] == load
    assert (found["10 times the records"].warm_records, found["10 times the keys"].keys) == (2_000, 500)
    assert {cell.partitions for cell in found.values()} == {1, 4, 16, 64}
    result = {**throughput(), "cells": {name: throughput() for name in found}}
    assert len(sizes_table({"count-matrix": result}).splitlines()) == 2 + len(found)


def test_a_plot_is_a_drawing_with_two_bars_for_each_row() -> None:
    drawn = svg([Bar("one & two", 5.0, 0.01, 3), Bar("three", 200.0, 1.0, None)])
    texts = [element.text for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
    assert {"one & two", "three", "5", "0.01", "200"} <= set(texts)


def test_a_result_says_what_was_typed_but_not_where(tmp_path: Path) -> None:
    typed = ["count", "--records", "5000", "--matrix", "--before", str(tmp_path), "--brokers", "here:9092"]
    with command.make_context("bench", typed) as context:
        body = described({"work": "count"}, context, machine_now())
    assert body["command"] == "stateflow bench count --before … --records 5000 --matrix"
    assert body["machine"]["pace_microseconds"] > 0
    write_result(body, tmp_path / "new" / "count.json")
    assert json.loads((tmp_path / "new" / "count.json").read_text()) == body


@pytest.mark.parametrize(
    ("cpu", "pace", "verdict"),
    [(2.2, 1_000, "within"), (3.0, 1_000, "dearer"), (1.0, 1_000, "cheaper"), (3.0, 1_500, "within")],
)
def test_cost_beside_the_last_release_is_taken_at_its_pace(
    tmp_path: Path, cpu: float, pace: int, verdict: str
) -> None:
    file = tmp_path / "band.json"
    write_result(updated(throughput(2.0), {"commands": {}}), file)
    now = {**throughput(cpu), "machine": {**MACHINE, "pace_microseconds": pace}}
    found = compared(now, read_bands(file))
    assert (found["verdict"], found["at_release"], found["release"]) == (verdict, 2.0, "1.2.3")


def test_a_band_file_without_the_command_is_told() -> None:
    bands = updated(throughput(), {"commands": {}})
    other = {**throughput(), "work": "rekey"}
    with pytest.raises(ConfigError, match="has no entry for `rekey"):
        compared(other, bands)
