"""`stateflow study operators`: every verb on random logs, straight, killed and repartitioned, against an oracle."""

from __future__ import annotations

import random

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.clock import SystemClock
from stateflow.lab.operators.study import (
    FULL_LOGS,
    QUICK_LOGS,
    SHOWN_MAX,
    OperatorsReport,
    all_verbs,
    run_study,
)
from stateflow.lab.operators.verb import Verb

_DIFFERENT = 1


@click.command()
@click.option("--quick", is_flag=True, help=f"{QUICK_LOGS} logs for each verb: a few minutes.")
@click.option("--seed", type=int, help="Draws everything. Chosen and told otherwise.")
@click.option(
    "--logs", type=click.IntRange(1), help=f"For each verb  [default: {FULL_LOGS}, quick {QUICK_LOGS}]"
)
@click.option("--only", multiple=True, metavar="TEXT", help="Only verbs in whose names this is.")
@json_option
def command(quick: bool, seed: int | None, logs: int | None, only: tuple[str, ...], as_json: bool) -> int:
    """Put random logs through each verb three ways: straight, with kills at any failpoint, with repartitions.

    Batches are random, some records late, some tables' records deletions; who dies may find a lost disk or one that
    lags, and its successor may die, too. Results are compared with a few lines of
    plain Python over the whole log. Ends with exit code 1 when anything differs.
    """
    clock = SystemClock()
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    verbs = [verb for verb in all_verbs() if not only or any(text in verb.name for text in only)]
    began = clock.monotonic_seconds()
    report = run_study(seed, logs or (QUICK_LOGS if quick else FULL_LOGS), verbs, _tell)
    report.seconds = clock.monotonic_seconds() - began
    body = report.as_dict("quick" if quick else "full", seed)
    if as_json:
        emit_json(body)
    else:
        shown = [(name, str(value)) for name, value in body.items() if name not in ("failed", "by_verb")]
        emit_pairs(shown)
    return _DIFFERENT if report.different else 0


def _tell(verb: Verb, part: OperatorsReport) -> None:
    click.echo(f"{verb.name}: {part.cases.total()} cases, {part.different.total()} different", err=True)
    for line in part.failed[:SHOWN_MAX]:
        click.echo(f"  {line}", err=True)
