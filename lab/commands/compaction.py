"""`stateflow study compaction`: the DRSS'19 grid and our tuner beside it, on a broker of its own, as JSON and HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from stateflow.cli.options import json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.clock import SystemClock
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.streams import State
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.filelock import file_lock
from stateflow.lab.compaction.bench import Bench
from stateflow.lab.compaction.page import study_page
from stateflow.lab.compaction.plan import StudyOptions, quick_options
from stateflow.lab.compaction.result import Study
from stateflow.lab.compaction.run import run_study
from stateflow.log.kafka import connect

BROKER_SETTINGS = {
    # The cleaner's stock pause of 15 s would hide segment.ms and the dirty ratio, which the study varies.
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.dedupe.buffer.size": 64 << 20,
}


@contextmanager
def _bootstrap(brokers: str | None) -> Iterator[str]:
    if brokers is not None:
        yield brokers
        return
    with EmbeddedKafka(overrides=BROKER_SETTINGS) as kafka:
        yield kafka.bootstrap


@contextmanager
def _bench(bootstrap: str, folder: Path) -> Iterator[Bench]:
    clock, cluster = SystemClock(), connect(bootstrap)
    start = clock.monotonic_seconds()
    admins = (ClusterAdmin(bootstrap), ClusterAdmin(bootstrap), ClusterAdmin(bootstrap))

    def progress(text: str) -> None:
        click.echo(f"{clock.monotonic_seconds() - start:6.0f} s  {text}", err=True)

    try:
        yield Bench(cluster, admins, folder, progress)
    finally:
        for admin in admins:
            admin.close()
        cluster.close()


@click.command()
@click.option("--quick", is_flag=True, help="One state, one partition, every cell once: a few minutes.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("study-compaction"),
    show_default=True,
    help="Where results are kept; runs that are there already are not repeated.",
)
@click.option("--brokers", help="A local broker to use; one of its own is started otherwise.")
@click.option("--repeats", type=click.IntRange(min=1), help="How often every cell is run.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(["fold-left", "retain-all"]),
    help="Only this kind of state; may be given twice.",
)
@click.option(
    "--partitions",
    multiple=True,
    type=click.IntRange(1, 64),
    help="Only topics of so many partitions; may be given more than once.",
)
@json_option
def command(
    quick: bool,
    folder: Path,
    brokers: str | None,
    repeats: int | None,
    states: tuple[State, ...],
    partitions: tuple[int, ...],
    as_json: bool,
) -> None:
    """Run the compaction study; ends with where the report is, or with one JSON object."""
    options = quick_options() if quick else StudyOptions()
    options = replace(
        options,
        repeats=repeats or options.repeats,
        states=states or options.states,
        partitions=partitions or options.partitions,
    )
    alone = file_lock(folder / ".lock", timeout_seconds=0)
    with alone, _bootstrap(brokers) as bootstrap, _bench(bootstrap, folder) as bench:
        study = run_study(bench, options)
    page = folder / "report.html"
    page.write_text(study_page(study), encoding="utf-8")
    if as_json:
        click.echo(f"report: {page}", err=True)
        sys.stderr.flush()
        emit_json({**study.summary(), "report": str(page)})
    else:
        print_study(study)
        click.echo(f"report: {page}")


def print_study(study: Study) -> None:
    """The figures as tables."""
    emit_table(
        ["workload", "cell", "log at most MB", "predicted", "cleaner %", "predicted", "restore s"],
        [
            [
                cell.setup,
                cell.name,
                f"{cell.size_max_bytes / 1e6:.2f}",
                f"{cell.simulated_size_max_bytes / 1e6:.2f}",
                f"{100 * cell.cleaner_cores:.2f}",
                f"{100 * cell.simulated_cleaner_cores:.2f}",
                f"{cell.restore_seconds:.3f}",
            ]
            for cell in study.cells
        ],
    )
    click.echo()
    emit_table(
        ["workload", "log ≤ × live", "grid's best", "its cleaner %", "ours %", "ratio", "held"],
        [
            [
                one.setup,
                f"{one.factor:g}",
                one.grid_best or "none",
                "" if one.grid_cleaner_cores is None else f"{100 * one.grid_cleaner_cores:.2f}",
                "" if one.ours_cleaner_cores is None else f"{100 * one.ours_cleaner_cores:.2f}",
                "" if one.ratio is None else f"{one.ratio:.2f}",
                "yes" if one.held else "no",
            ]
            for one in study.objectives
        ],
    )
    for loop in study.loops:
        click.echo(
            f"{loop.name}: {loop.share_over_bound:.1%} of the time over the bound, "
            f"{loop.cleaner_cores:.1%} of a core, {loop.changes} changes"
        )
