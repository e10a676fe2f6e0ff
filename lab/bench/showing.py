"""A benchmark's result as people read it in a terminal."""

from __future__ import annotations

from typing import Any

import click

from stateflow.cli.output import emit_pairs, emit_table
from stateflow.lab.bench.result import OURS

_THROUGHPUT = ("records/s", "from", "to", "CPU s per million", "ours is so much faster", "cheaper", "RSS MiB")
_IDLE_COLUMNS = {
    "tasks": "tasks",
    "shared_writers": "shared writers",
    "ready_seconds": "ready s",
    "ready_cpu_seconds": "its CPU s",
    "threads": "threads",
    "descriptors": "descriptors",
    "rss_bytes": "RSS bytes",
    "cpu_percent": "idle CPU %",
}


def show(body: dict[str, Any]) -> None:
    """Whatever kind of result it is."""
    if "cells" in body:
        _show_cells(body["cells"])
    elif "workers" in body:
        rows = [[row[name] for name in _IDLE_COLUMNS] for row in body["workers"]]
        emit_table(list(_IDLE_COLUMNS.values()), rows)
    elif "cpu_ratios" in body:
        _show_setups(body)
        emit_table(("side", *_THROUGHPUT), [(side, *_figures(body, side)) for side in body["sides"]])
        click.echo(_same(body))
    elif "sides" in body:
        _show_setups(body)
        columns = list(next(iter(body["sides"].values())))
        rows = [[side, *(figures[name] for name in columns)] for side, figures in body["sides"].items()]
        emit_table(("side", *columns), rows)
    else:
        emit_pairs([(name, str(value)) for name, value in body.items()])
    if "band" in body:
        emit_pairs(list(body["band"].items()))


def _show_cells(cells: dict[str, dict[str, Any]]) -> None:
    rows = [
        (name, side, *_figures(cell, side), "same" if cell["same_result"] else "DIFFERENT")
        for name, cell in cells.items()
        for side in cell["sides"]
    ]
    emit_table(("size", "side", *_THROUGHPUT, "results"), rows)


def _show_setups(body: dict[str, Any]) -> None:
    """How each side is set up, one setting a word."""
    for side, setup in body["setups"].items():
        emit_pairs([(side, " ".join(f"{name}={value}" for name, value in _flat(setup)))])


def _flat(setup: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in setup.items():
        where = f"{prefix}{name}"
        found += _flat(value, f"{where}.") if isinstance(value, dict) else [(where, value)]
    return found


def _figures(body: dict[str, Any], side: str) -> tuple[object, ...]:
    figures = body["sides"][side]
    return (
        figures["records_per_second"],
        *figures["records_per_second_spread"],
        body["cpu_seconds_per_million"][side],
        "" if side == OURS else body["ratios"][side]["median"],
        "" if side == OURS else body["cpu_ratios"][side]["median"],
        figures["rss_bytes_max"] >> 20,
    )


def _same(body: dict[str, Any]) -> str:
    return f"results are {'the same' if body['same_result'] else 'DIFFERENT'}; {body['runs']} round(s)"
