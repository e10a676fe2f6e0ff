"""`stateflow study states`: what each type of state costs to update, query, repartition and merge, and to put into
an image.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.errors import ConfigError
from stateflow.lab.costs.kinds import KINDS
from stateflow.lab.costs.measure import QUICK, measure_states
from stateflow.lab.costs.result import HEADER, StatesStudy, rows
from stateflow.lab.costs.site import CostOptions
from stateflow.log.kafka import connect
from stateflow.testing.broker import open_test_broker


@click.command()
@click.option("--quick", is_flag=True, help="Fewer updates, every type once: about three minutes.")
@click.option("--brokers", help="A broker to use; one of its own is started otherwise.")
@click.option("--updates", type=click.IntRange(min=1000), help="Updates per type and run.")
@click.option("--runs", type=click.IntRange(min=1), help="How often everything is run.")
@click.option("--only", multiple=True, metavar="TYPE", help="Measure this type; may be repeated.")
@json_option
def command(
    quick: bool,
    brokers: str | None,
    updates: int | None,
    runs: int | None,
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure every type of state on a real broker and real RocksDB; ends with one JSON object with --json."""
    options = QUICK if quick else CostOptions()
    options = replace(
        options, updates=updates or options.updates, runs=runs or options.runs, only=_types(only)
    )
    with (
        open_test_broker(brokers) as broker,
        tempfile.TemporaryDirectory(prefix="stateflow-states-") as folder,
    ):
        cluster = connect(broker.bootstrap)
        try:
            study = measure_states(cluster, options, Path(folder), _tell)
        finally:
            cluster.close()
    if as_json:
        emit_json(study.summary())
    else:
        print_study(study)


def print_study(study: StatesStudy) -> None:
    """The costs as a table, and what they are beyond."""
    emit_table(HEADER, rows(study))
    click.echo()
    click.echo(
        f"{study.updates} updates of {study.keys} keys, {len(study.baseline) // 2} run(s). An update is counted"
        f" beyond the {study.baseline_cpu_us:.1f} µs of CPU that a record takes through the same pipeline without"
        f" state, which itself varied by {study.baseline_spread_us:.1f} µs."
    )


def _types(only: tuple[str, ...]) -> tuple[str, ...]:
    known = [kind.name for kind in KINDS]
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ConfigError(
            f"there is no type of state called {unknown[0]!r}.", action=f"name one of: {', '.join(known)}."
        )
    return only


def _tell(text: str) -> None:
    click.echo(text, err=True)
    sys.stderr.flush()
