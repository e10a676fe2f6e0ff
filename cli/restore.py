"""`stateflow restore`: rebuild local state from the changelogs, by the catalog alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import click

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.names import stage_and_partition
from stateflow.checkpoint.decisions import Decided, Decision, decide, decisions
from stateflow.checkpoint.jobs import committed_ends, jobs_of
from stateflow.checkpoint.progress import Progress, ProgressBar
from stateflow.checkpoint.recovery import Outcome, restore_all
from stateflow.cli.application import connected, connector
from stateflow.cli.early import restore_early, show_answer, show_bounds, wanted_keys
from stateflow.cli.options import (
    app_id_option,
    brokers_override,
    dry_run_option,
    images_option,
    json_option,
    optional_target_argument,
)
from stateflow.cli.output import emit_json, emit_table
from stateflow.cli.target import chosen
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError
from stateflow.query.early_serving import answer_fields
from stateflow.scale.early.asks import Answer


@click.command()
@optional_target_argument
@app_id_option
@brokers_override
@click.option(
    "--to",
    "state_dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="State directory to restore into; the application's own by default.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), help="Tasks at a time; as many as processors by default."
)
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these partitions."
)
@images_option
@click.option(
    "--serve-early",
    is_flag=True,
    help="Read the newest records first, and answer for keys long before all is restored.",
)
@click.option(
    "--key",
    "keys",
    metavar="STORE=KEY",
    multiple=True,
    help="With --serve-early: read what this key needs first, and print it.",
)
@dry_run_option
@json_option
def command(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    state_dir: Path | None,
    workers: int | None,
    partitions: tuple[int, ...],
    images: str | None,
    serve_early: bool,
    keys: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Restore the local state of all tasks of APP (or --app ID) from its changelogs.

    Reads only what is missing; where images are kept, a task that would have to read its whole changelog begins with
    the newest image that leaves less to read. Ctrl-C stops cleanly; started again it goes on where it was. A damaged
    local store is moved aside (`<task>.damaged`). A task that a running worker has open is refused.

    With --serve-early changelogs are read from their ends backwards, and `stateflow state get` on this machine is
    answered meanwhile: at once for what was read, else what the key needs is read next. The result is the same.
    """
    wanted = wanted_keys(keys)
    if wanted and not serve_early:
        raise ConfigError("--key says what is answered early.", action="add --serve-early.")
    application = chosen(target, app_id, brokers)
    options = application.options
    with connected(options) as cluster:
        catalog = ControlTopic(cluster, application.app).load()
        where = state_dir or options.state_dir
        jobs = jobs_of(catalog, cluster.cluster_id, where, partitions, images or options.images)
        found = {stage_and_partition(job.task)[1] for job in jobs}
        unknown = [str(partition) for partition in partitions if partition not in found]
        if unknown:
            raise ConfigError(
                f"{application.app!r} has no stateful task of partition {', '.join(unknown)}.",
                action=f"its generation {catalog.active.generation} has partitions 0 to"
                f" {catalog.active.partitions - 1}.",
            )
        jobs = [replace(job, ends=committed_ends(cluster, job)) for job in jobs]
        decided = [decide(cluster, job, SystemClock()) for job in jobs]
    refused = [task.refused for task in decided if task.refused is not None]
    if dry_run:
        _show_decisions(application.app, catalog.active.generation, decided, as_json=as_json)
        if not as_json:
            show_bounds(catalog, decided, wanted)
    if refused:
        raise refused[0]
    if dry_run:
        return
    bar = ProgressBar(sys.stderr)
    last: list[Progress] = []

    def report(progress: Progress) -> None:
        last[:] = [progress]
        bar.update(progress)

    answers: list[Answer] = []

    def on_answer(answer: Answer) -> None:
        answers.append(answer)
        if not as_json:
            show_answer(answer)

    reach, lanes = connector(options), workers or os.cpu_count() or 1
    if serve_early:
        outcomes = restore_early(reach, catalog, jobs, where, lanes, wanted, report, on_answer)
    else:
        plans = [task.plan for task in decided if task.plan is not None]
        outcomes = restore_all(reach, jobs, plans, lanes, report)
    if last:
        bar.finish(last[0])
    early = {"answers": [answer_fields(answer) for answer in answers]} if serve_early else {}
    _show_outcomes(application.app, outcomes, last[0] if last else None, early, as_json=as_json)


def _show_decisions(app: str, generation: int, decided: list[Decided], *, as_json: bool) -> None:
    rows = [row for task in decided for row in task.rows]
    if as_json:
        plan = [_as_json(row) for row in rows]
        emit_json(
            {"app": app, "generation": generation, "slots": sum(row.slots for row in rows), "plan": plan}
        )
        return
    emit_table(("task", "store", "decision"), [(row.task, row.store, row.sentence) for row in rows])


def _as_json(row: Decision) -> dict[str, object]:
    return {**asdict(row), "decision": row.sentence}


def _show_outcomes(
    app: str, outcomes: list[Outcome], total: Progress | None, early: Mapping[str, object], *, as_json: bool
) -> None:
    records = sum(outcome.progress.records_total for outcome in outcomes)
    seconds = total.seconds if total else 0.0
    if as_json:
        emit_json(
            {
                "app": app,
                "tasks": len(outcomes),
                "records": records,
                "bytes": sum(outcome.progress.bytes_total for outcome in outcomes),
                "slots": sum(outcome.progress.slots_total for outcome in outcomes),
                "seconds": round(seconds, 3),
                "plan": [
                    _as_json(row) for outcome in outcomes for row in decisions(outcome.plan, outcome.image)
                ],
                **early,
            }
        )
        return
    rate = f", {records / seconds:,.0f} records/s" if seconds > 0 and records else ""
    done = f"{records:,} records in {seconds:.1f} s{rate}"
    click.echo(f"{len(outcomes)} tasks of {app} are up to date: {done}.")
