"""`stateflow study time`: random logs through the operators, compared with an oracle and with Kafka Streams."""

from __future__ import annotations

import random
from typing import Any

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.clock import SystemClock
from stateflow.lab.commands.faults import Progress
from stateflow.lab.time.report import SHOWN_MAX, TimeReport
from stateflow.lab.time.running import run_study
from stateflow.lab.time.study import FULL_LOGS, QUICK_LOGS, case_of

_DIFFERENT = 1


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the logs: about a minute on two cores.")
@click.option(
    "--seed", type=int, help="Draws everything; the same seed is the same study. Chosen and told otherwise."
)
@click.option("--logs", type=click.IntRange(1), help=f"How many  [default: {FULL_LOGS}, quick {QUICK_LOGS}]")
@click.option(
    "--only", multiple=True, type=click.IntRange(0), metavar="NUMBER", help="Only these logs, told in full."
)
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True)
@json_option
def command(
    quick: bool, seed: int | None, logs: int | None, only: tuple[int, ...], processes: int, as_json: bool
) -> int:
    """Put random logs through windows, aggregates, timers and times to live, in any batches and through crashes.

    Everything is compared with an oracle that works record by record, windows and plain aggregates also with Kafka
    Streams' TopologyTestDriver. Ends with exit code 1 when anything differs.
    """
    clock = SystemClock()
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    numbers = only or range(logs or (QUICK_LOGS if quick else FULL_LOGS))
    for number in only:
        _show(seed, number)
    progress = Progress("logs", len(numbers), clock)
    report = run_study(
        seed,
        numbers,
        processes=processes,
        on_progress=lambda done: progress.at(done.logs, done.different),
    )
    return told(report, report.as_dict("time", "quick" if quick else "full", seed), as_json=as_json)


def _show(seed: int, number: int) -> None:
    case = case_of(seed, number)
    click.echo(f"log {number}: {case.program}", err=True)
    for play in case.plays:
        click.echo(f"  {play}", err=True)
    newest_ms: dict[int, int] = {}
    for index, row in enumerate(case.rows):
        behind_ms = newest_ms.get(row.partition, 0) - row.timestamp_ms
        newest_ms[row.partition] = max(newest_ms.get(row.partition, 0), row.timestamp_ms)
        late = f"  {behind_ms} ms behind" if behind_ms > 0 else ""
        click.echo(
            f"  {index:3d}  {row.partition}  {row.key:5}  {row.value!s:>5}  {row.timestamp_ms}{late}",
            err=True,
        )


def told(report: TimeReport, body: dict[str, Any], *, as_json: bool) -> int:
    """Print the report of a study of logs; returns the exit code."""
    for line in (*report.left_out, *report.failed[:SHOWN_MAX]):
        click.echo(line, err=True)
    if len(report.failed) > SHOWN_MAX:
        click.echo(f"… and {len(report.failed) - SHOWN_MAX} more", err=True)
    if as_json:
        emit_json(body)
    else:
        emit_pairs([(name, str(value)) for name, value in body.items() if name not in ("failed", "left_out")])
    return _DIFFERENT if report.different else 0
