"""`stateflow study recovery`: how much faster lost state is rebuilt by several jobs, and whether it is the same."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.lab.recovery.measure import RecoveryOptions, measure_recovery
from stateflow.testing.broker import open_test_broker

_QUICK_RECORDS = 500_000


@click.command()
@click.option("--quick", is_flag=True, help="Fewer records: about a minute.")
@click.option("--brokers", help="A broker to use; one of its own is started otherwise.")
@click.option("--records", type=click.IntRange(min=50_000), help="Records of the changelog.")
@click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--degree", type=click.IntRange(1, 64), multiple=True, help="Jobs at a time; may be repeated.")
@click.option("--spark", is_flag=True, help="As Spark tasks; processes of this machine otherwise.")
@json_option
def command(
    quick: bool,
    brokers: str | None,
    records: int | None,
    partitions: int,
    degree: tuple[int, ...],
    spark: bool,
    as_json: bool,
) -> None:
    """Rebuild the state of a changelog in order and by sub-ranges of its offsets, and compare every byte.

    Exit code 1 when a recovered database differs.
    """
    options = RecoveryOptions(partitions=partitions, spark=spark)
    options = replace(
        options,
        records=records or (_QUICK_RECORDS if quick else options.records),
        degrees=degree or options.degrees,
    )
    with (
        open_test_broker(brokers) as broker,
        tempfile.TemporaryDirectory(prefix="stateflow-recovery-") as folder,
    ):
        study = measure_recovery(broker.bootstrap, options, Path(folder), _tell)
    if as_json:
        emit_json(study.summary())
    else:
        rows = [[f"{degree} at a time", seconds] for degree, seconds in study.seconds_by_degree.items()]
        emit_table(("how", "seconds"), [["in order", study.seconds_in_order], *rows])
        click.echo("Every byte is equal." if study.equal else "THE RESULTS DIFFER.")
    if not study.equal:
        sys.exit(1)


def _tell(line: str) -> None:
    click.echo(line, err=True)
