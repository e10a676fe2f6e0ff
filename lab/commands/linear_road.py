"""`stateflow study linear-road`: tolls under rising load, every answer compared, how long each took."""

from __future__ import annotations

import random
from pathlib import Path

import click

from stateflow.cli.options import OutputFile, json_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.lab.linear_road.page import road_page
from stateflow.lab.linear_road.study import DriveResult, full_drives, quick_drives, run_drive, summary

_WRONG = 1


@click.command()
@click.option(
    "--quick", is_flag=True, help="Four minutes of traffic at several times its speed: about four minutes."
)
@click.option("--seed", type=int, help="Draws the traffic. Chosen and told otherwise.")
@click.option(
    "--page",
    type=OutputFile(),
    help="Write the latencies over time there, as HTML.",
)
@json_option
def command(quick: bool, seed: int | None, page: Path | None, as_json: bool) -> int:
    """Run the example of Linear Road in two workers on a broker of its own, with one load after the other.

    The rating is the largest number of expressways, by reports per second, at which all answers were right and the
    slowest was there within 5 seconds. The last run is killed and rescaled to three partitions and back, for its
    answers and not for the rating. Ends with exit code 1 when an answer is missing or wrong.
    """
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    results = []
    for drive in quick_drives(seed) if quick else full_drives(seed):
        results.append(run_drive(drive))
        _tell(results[-1])
    if page is not None:
        page.write_text(road_page(results), encoding="utf-8")
    body = summary(results, "quick" if quick else "full", seed)
    if as_json:
        emit_json(body)
    else:
        emit_pairs([(name, str(value)) for name, value in body.items() if name != "runs"])
    return _WRONG if any(not result.comparison.is_exact for result in results) else 0


def _tell(result: DriveResult) -> None:
    click.echo(
        f"{result.drive.name}: {result.comparison.right} answers,"
        f" {result.comparison.missing} missing, {result.comparison.wrong} wrong; p99"
        f" {result.latency_seconds(99):.2f} s, slowest {result.latency_seconds(100):.2f} s;"
        f" {result.cpu_seconds_per_million:.0f} CPU seconds per million reports",
        err=True,
    )
    for example in result.comparison.examples:
        click.echo(f"  {example}", err=True)
