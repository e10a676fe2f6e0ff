"""`stateflow study chaos`: a whole application under faults and operations drawn from a seed, on real brokers."""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from stateflow.cli.options import OutputFolder, json_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.lab.chaos.plan import BROKER_KINDS, FULL, QUICK
from stateflow.lab.chaos.report import Report
from stateflow.lab.chaos.study import run_study

_FOUND_SOMETHING = 1


@click.command()
@click.option(
    "--quick", is_flag=True, help="Two rounds of little input and the cheapest events: half a minute."
)
@click.option(
    "--seed", type=int, help="Draws everything; the same seed is the same study. Chosen and told otherwise."
)
@click.option(
    "--rounds", type=click.IntRange(1, 1_000), help=f"[default: {FULL.rounds}, quick {QUICK.rounds}]"
)
@click.option(
    "--brokers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="How many brokers."
)
@click.option(
    "--at",
    metavar="HOST:PORT",
    help="A cluster to use, of as many brokers as --brokers says; nothing happens to them. Its own otherwise.",
)
@click.option(
    "--folder", type=OutputFolder(), help="Keep logs, state and the brokers' data in a folder below this one."
)
@json_option
def command(
    quick: bool,
    seed: int | None,
    rounds: int | None,
    brokers: str,
    at: str | None,
    folder: Path | None,
    as_json: bool,
) -> int:
    """Kill, freeze, stop, repartition, restore and tune an application with two workers, and compare all results.

    Ends with exit code 1 when a result was lost, doubled or different, the application ended by itself, something was
    stuck, or a command failed with an error that does not pass. The logs are kept then, and named.
    """
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    size = QUICK if quick else FULL
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"stateflow-chaos-{seed}-", dir=folder))
    report = Report(seed, int(brokers))
    try:
        report = run_study(
            seed,
            replace(
                size,
                rounds=rounds or size.rounds,
                kinds=[kind for kind in size.kinds if at is None or kind not in BROKER_KINDS],
            ),
            int(brokers),
            place,
            lambda line: click.echo(line, err=True),
            at,
        )
    finally:
        if folder is None and not report.is_bad:
            shutil.rmtree(place, ignore_errors=True)
    if report.is_bad:
        report.logs = str(place)
        click.echo(f"The logs are in {place}.", err=True)
    body = report.as_dict()
    if as_json:
        emit_json(body)
    else:
        emit_pairs([(name, str(value)) for name, value in body.items() if name != "study"])
    return _FOUND_SOMETHING if report.is_bad else 0
