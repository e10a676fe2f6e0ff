"""`stateflow study endurance`: slow code, hot keys, many windows and tasks, an absent broker; production settings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from stateflow.cli.options import OutputFolder, json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.lab.endurance.cases import cases
from stateflow.lab.endurance.study import CaseResult, run_case, summary

_BROKEN = 1
_SAID_LINES = 15
_NAMES = [case.name for case in cases(quick=True)]


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="stateflow-endurance-") as name:
        yield Path(name)


@click.command()
@click.option("--quick", is_flag=True, help="Less input and a shorter outage: some minutes.")
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="Only these cases.")
@click.option("--folder", type=OutputFolder(), help="Keep state and logs here.")
@json_option
def command(quick: bool, only: tuple[str, ...], folder: Path | None, as_json: bool) -> int:
    """Run worker processes with default settings where work piles up, and look whether they stay.

    Each case has a broker of its own. Watched from outside: the longest time without a commit, the memory of each
    process, whether a worker ends, and at the end every result against an oracle. Ends with exit code 1 when a worker
    ended, was stuck, held more memory than it may, left a second commit waiting for too long, or a result differs.
    """
    results = []
    with _place(folder) as place:
        for case in cases(quick=quick):
            if only and case.name not in only:
                continue
            click.echo(f"{case.name}: {case.about}", err=True)
            result = run_case(case, place)
            _tell(result)
            results.append(result)
    if as_json:
        emit_json(summary(results, "quick" if quick else "full"))
    else:
        emit_table(
            ["case", "seconds", "ended", "stuck", "RSS MiB", "commit gap s", "different"],
            [
                [
                    result.name,
                    f"{result.seconds:.0f}",
                    "yes" if result.ended else "no",
                    "yes" if result.stuck else "no",
                    f"{result.rss_mib_max:.0f}",
                    f"{result.commit_gap_seconds_max:.1f}",
                    str(result.different),
                ]
                for result in results
            ],
        )
    return _BROKEN if any(result.is_bad for result in results) else 0


def _tell(result: CaseResult) -> None:
    state = "BROKEN" if result.is_bad else "ok"
    click.echo(
        f"  {state}: {result.seconds:.0f} s, commits at most {result.commit_gap_seconds_max:.1f} s apart,"
        f" {result.rss_mib_max:.0f} MiB of {result.rss_limit_mib:.0f}, {result.different} different",
        err=True,
    )
    if result.is_bad:
        for line in result.said.splitlines()[-_SAID_LINES:]:
            click.echo(f"    {line}", err=True)
