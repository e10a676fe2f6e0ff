"""`stateflow study joins`: random logs through joins and tables, compared with Kafka Streams."""

from __future__ import annotations

import random

import click

from stateflow.cli.options import json_option
from stateflow.clock import SystemClock
from stateflow.errors import SetupError
from stateflow.lab.commands.faults import Progress
from stateflow.lab.commands.time import told
from stateflow.lab.time.joins import JOINS as KINDS
from stateflow.lab.time.running import JOINS, run_study

FULL_LOGS, QUICK_LOGS = 1_000, 200


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the logs: about two minutes on two cores.")
@click.option(
    "--seed", type=int, help="Draws everything; the same seed is the same study. Chosen and told otherwise."
)
@click.option(
    "--logs",
    type=click.IntRange(1),
    help=f"How many of each join  [default: {FULL_LOGS}, quick {QUICK_LOGS}]",
)
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True)
@json_option
def command(quick: bool, seed: int | None, logs: int | None, processes: int, as_json: bool) -> int:
    """Put random logs through every join and through aggregates of tables, and compare with Kafka Streams.

    Logs have late records, equal times, tombstones and keys that come back; applications crash, lose their disks
    and are repartitioned meanwhile. What comes out is compared with Kafka Streams' TopologyTestDriver. Ends with
    exit code 1 when anything differs.
    """
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    numbers = range((logs or (QUICK_LOGS if quick else FULL_LOGS)) * len(KINDS))
    progress = Progress("logs", len(numbers), SystemClock())
    report = run_study(
        seed,
        numbers,
        JOINS,
        processes=processes,
        on_progress=lambda done: progress.at(done.logs, done.different),
    )
    if report.left_out:
        raise SetupError(
            report.left_out[0],
            action="Let `stateflow doctor` look for Java; the jars come from Maven Central.",
        )
    return told(report, report.as_dict("joins", "quick" if quick else "full", seed), as_json=as_json)
