"""`stateflow study recovery`: how lost state comes back, how long each way takes, and whether it is the same."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from stateflow.cli.options import OutputFile, json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.lab.recovery.measure import RecoveryOptions, RecoveryStudy, measure_recovery
from stateflow.lab.recovery.page import recovery_page
from stateflow.lab.recovery.study import full_plan, quick_plan, run_recovery
from stateflow.testing.broker import open_test_broker

_QUICK_RECORDS = 4_000_000


@click.command()
@click.option("--quick", is_flag=True, help="Fewer records, intervals and loads: about five minutes.")
@click.option("--brokers", help="A broker to use; one of its own is started otherwise.")
@click.option("--records", type=click.IntRange(min=50_000), help="Records of the changelog.")
@click.option("--partitions", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--degree", type=click.IntRange(1, 64), multiple=True, help="Jobs at a time; may be repeated.")
@click.option("--spark", is_flag=True, help="As Spark tasks; processes of this machine otherwise.")
@click.option("--parallel-only", is_flag=True, help="Several jobs at one partition, and nothing else.")
@click.option("--page", type=OutputFile(), help="Write what was found there, as HTML.")
@json_option
def command(
    quick: bool,
    brokers: str | None,
    records: int | None,
    partitions: int,
    degree: tuple[int, ...],
    spark: bool,
    parallel_only: bool,
    page: Path | None,
    as_json: bool,
) -> None:
    """Lose state, and measure how it comes back.

    One partition's changelog is rebuilt in order and by several jobs over sub-ranges of its offsets, and every byte
    compared. Then a windowed word count loses its worker and its disk while the feed goes on: it comes back from images
    and the tail behind them, from the changelog, from the words between its stages, and from the source; with several
    intervals between images at several loads. What keeping state costs is measured by counting a backlog.

    Exit code 1 when a recovered database or a count differs.
    """
    if parallel_only and page is not None:
        raise click.UsageError("--page shows the whole study, which --parallel-only leaves out.")
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
        if parallel_only:
            study = measure_recovery(broker.bootstrap, options, Path(folder), _tell)
            body, is_right = study.summary(), study.equal
        else:
            plan = quick_plan(options) if quick else full_plan(options)
            found = run_recovery(broker.bootstrap, plan, Path(folder), _tell)
            study, body, is_right = found.parallel, found.summary(), found.is_right
            if page is not None:
                page.write_text(recovery_page(found), encoding="utf-8")
    if as_json:
        emit_json(body)
    else:
        _show(study, is_right=is_right)
    if not is_right:
        sys.exit(1)


def _show(study: RecoveryStudy, *, is_right: bool) -> None:
    rows = [[f"{degree} at a time", seconds] for degree, seconds in study.seconds_by_degree.items()]
    emit_table(("how", "seconds"), [["in order", study.seconds_in_order], *rows])
    click.echo("Everything is equal." if is_right else "THE RESULTS DIFFER.")


def _tell(line: str) -> None:
    click.echo(line, err=True)
