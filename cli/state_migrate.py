"""`stateflow state migrate`: write all state by the present schemas, so that old migrations can go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from stateflow.checkpoint.progress import Progress, ProgressBar
from stateflow.cli.application import configured, connected
from stateflow.cli.options import (
    brokers_override,
    dry_run_option,
    json_option,
    state_dir_override,
    target_argument,
)
from stateflow.cli.output import emit_json, emit_table
from stateflow.clock import SystemClock
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare
from stateflow.scale.rewriting import Outdated, Rewritten, as_it_would_be, outdated, rewrite
from stateflow.store.rocks import RocksResources


@click.command()
@target_argument
@brokers_override
@state_dir_override
@dry_run_option
@json_option
def migrate(target: str, brokers: str | None, state_dir: Path | None, dry_run: bool, as_json: bool) -> None:
    """Write every value of APP that an older schema wrote by the present one.

    Needed only to drop migrations from the code: values are migrated whenever they are read. Stop the workers first.
    Stopped anywhere it goes on where it was; --dry-run counts the values of each schema.
    """
    app = configured(target, brokers=brokers, state_dir=state_dir)
    options, clock = app.options, SystemClock()
    with connected(options) as cluster:
        counted = list(outdated(cluster, as_it_would_be(cluster, app.topology())))
        if dry_run:
            _show(app.id, counted, None, as_json=as_json)
            return
        wiring = prepare(cluster, app.topology(), options.guarantee, options.partitions, clock)
        settings = worker_settings(options)
        opener = rocks_opener(cluster, settings, RocksResources(), clock)
        bar = ProgressBar(sys.stderr)
        done = rewrite(
            cluster, wiring, opener, settings, clock, lambda so_far: bar.update(_progress(app.id, so_far))
        )
        bar.finish(_progress(app.id, done))
    _show(app.id, counted, done, as_json=as_json)


def _progress(app: str, done: Rewritten) -> Progress:
    return Progress(app, done.tasks_done, done.tasks_total, done.entries_total, 0, done.seconds)


def _show(app: str, counted: list[Outdated], done: Rewritten | None, *, as_json: bool) -> None:
    if as_json:
        stores: list[dict[str, Any]] = [
            {"store": each.store, "present": each.present, "values": dict(sorted(each.values.items()))}
            for each in counted
        ]
        written = None if done is None else done.values_total
        emit_json({"app": app, "stores": stores, "written": written})
        return
    rows = [
        (each.store, number, count, "present" if number == each.present else "to be written anew")
        for each in counted
        for number, count in sorted(each.values.items())
    ]
    if not counted:
        click.echo(f"All state of {app} is written by its present schemas.")
    elif done is None:
        emit_table(("store", "schema", "values", ""), rows)
    else:
        click.echo(f"{done.values_total:,} values of {app} were written anew in {done.seconds:.1f} s.")
