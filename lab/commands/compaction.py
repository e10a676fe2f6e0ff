"""`stateflow study compaction`: the DRSS'19 grid and our tuner beside it, on a broker of its own, as JSON and HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click

from stateflow.cli.options import OutputFolder, json_option
from stateflow.cli.output import emit_json, emit_table
from stateflow.clock import SystemClock
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.model.streams import State
from stateflow.compaction.settings.units import duration
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.filelock import file_lock
from stateflow.lab.compaction.bench import Bench
from stateflow.lab.compaction.live_cells import LiveOptions
from stateflow.lab.compaction.page import study_page
from stateflow.lab.compaction.plan import StudyOptions, quick_options
from stateflow.lab.compaction.result import Study
from stateflow.lab.compaction.run import kept_costs, run_study
from stateflow.lab.compaction.stock import live_figures
from stateflow.lab.compaction.stock_result import live_summary
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
    type=OutputFolder(),
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
@click.option(
    "--live",
    "live_cells",
    type=click.IntRange(min=1),
    help="Only so many random logs on live brokers, a broker after another, against what is promised of them.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of all streams.")
@json_option
def command(
    quick: bool,
    folder: Path,
    brokers: str | None,
    repeats: int | None,
    states: tuple[State, ...],
    partitions: tuple[int, ...],
    live_cells: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Run the compaction study; ends with where the report is, or with one JSON object."""
    if live_cells is not None:
        _check_live(LiveOptions(cells=live_cells, seed=seed), folder, as_json=as_json)
        return
    options = quick_options() if quick else StudyOptions()
    options = replace(
        options,
        repeats=repeats or options.repeats,
        states=states or options.states,
        partitions=partitions or options.partitions,
        seed=seed,
        stock=replace(options.stock, live=replace(options.stock.live, seed=seed)),
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


def _check_live(options: LiveOptions, folder: Path, *, as_json: bool) -> None:
    """The random logs alone; those whose runs are in the folder are not run again."""
    clock = SystemClock()
    start = clock.monotonic_seconds()

    def progress(text: str) -> None:
        click.echo(f"{clock.monotonic_seconds() - start:6.0f} s  {text}", err=True)

    with file_lock(folder / ".lock", timeout_seconds=0):
        brokers = live_figures(options, kept_costs(folder), folder, progress, stock=False)
    logs = [log for broker in brokers for log in broker.logs]
    found = {**live_summary(logs, brokers), "brokers": [broker.summary() for broker in brokers]}
    if as_json:
        emit_json(found)
        return
    emit_table(
        ["broker", "backoff", "JVM", "logs", "kept up", "broken", "size off", "CPU", "by default", "waiting"],
        [
            [
                one["name"],
                duration(one["backoff_ms"] / 1000),
                "production" if one["production_jvm"] else "small",
                one["cells"],
                "no" if one["overloaded"] else "yes",
                one["bound_broken"],
                f"{one['size_mean_abs']:.1%}",
                f"{one['cleaner_cores']:.2%}",
                f"{one['cleaner_cores_predicted_uncalibrated']:.2%}",
                f"{one['slowness']:.1f} ×",
            ]
            for one in found["brokers"]
        ],
    )
    kept_up = found["cells"] - found["cells_on_overloaded_cleaners"]
    click.echo(
        f"{found['bound_broken']} of {kept_up} logs grew beyond what was promised of them, and of "
        f"{found['cells'] - kept_up} whose cleaner could not keep up "
        f"{found['larger_than_promised_on_overloaded_cleaners']}"
    )


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
