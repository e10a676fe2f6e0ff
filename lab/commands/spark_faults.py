"""`stateflow study spark-faults`: kill -9 amid Spark jobs and a running application; is anything lost, or twice?"""

from __future__ import annotations

import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.lab.spark_faults.cases import CASES
from stateflow.lab.spark_faults.study import (
    TARGETS,
    Address,
    FaultOptions,
    guarded_address,
    study_spark_faults,
)
from stateflow.lab.spark_faults.yarn_study import study_yarn

_QUICK = {"kills": 18, "kills_per_run": 3, "size": 8_000, "seconds_max": 420.0, "stuck_seconds": 180.0}

_YARN = {"kills": 3, "size": 8_000, "stuck_seconds": 300.0}


@click.command()
@click.option("--quick", is_flag=True, help="Three kills of each job: ten minutes at most.")
@click.option("--brokers", help="A broker to use; else one is started that wants TLS and passwords.")
@click.option("--kills", type=click.IntRange(min=1), help="Processes to kill in all; 200 by default.")
@click.option("--size", type=click.IntRange(min=1_000), help="Keys of each job's state.")
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Of the moments and the targets; the next run has the next.",
)
@click.option("--yarn", is_flag=True, help="On YARN: an application in cluster mode; 3 kills by default.")
@click.option("--job", type=click.Choice(list(CASES)), multiple=True, help="Only this one; may be repeated.")
@json_option
def command(
    quick: bool,
    brokers: str | None,
    kills: int | None,
    size: int | None,
    seed: int,
    yarn: bool,
    job: tuple[str, ...],
    as_json: bool,
) -> None:
    """Kill drivers, executors and Python workers on a standalone cluster of processes, amid each job.

    The jobs are the templates, run from copies, against a broker with TLS and passwords. Exit code 1 when anything is
    lost, doubled or stuck.

    With --yarn a running application is submitted to a YARN cluster of processes, with a packed environment; YARN
    itself starts its master again.
    """
    options = FaultOptions(seed=seed, jobs=job or tuple(CASES))
    if quick:
        options = replace(options, **_QUICK)  # type: ignore[arg-type]
    if yarn:
        options = replace(options, **_YARN)  # type: ignore[arg-type]
    options = replace(options, kills=kills or options.kills, size=size or options.size)
    with tempfile.TemporaryDirectory(prefix="stateflow-spark-faults-") as name:
        folder = Path(name)
        own = (
            guarded_address(folder)
            if brokers is None
            else nullcontext(Address(brokers, ("--brokers", brokers)))
        )
        with own as address:
            studied = study_yarn if yarn else study_spark_faults
            study = studied(address, options, folder, _tell)
    if as_json:
        emit_json(study.summary())
    else:
        rows = [
            [name, it.runs, *(it.kills[target] for target in TARGETS), it.lost, it.twice, it.stuck]
            for name, it in study.by_job.items()
        ]
        emit_table(("job", "runs", *TARGETS, "lost", "twice", "stuck"), rows)
    if not study.is_clean:
        sys.exit(1)


def _tell(line: str) -> None:
    click.echo(line, err=True)
