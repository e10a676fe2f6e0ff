"""Keys asked for while a restore is under way: `stateflow restore --serve-early`, and the other side in `state get`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from stateflow.catalog.model import Catalog
from stateflow.checkpoint.decisions import Decided
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.progress import Progress
from stateflow.checkpoint.recovery import Outcome, interrupts_noted
from stateflow.cli.output import emit_table, human_bytes, printable
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError
from stateflow.log.base import Cluster
from stateflow.scale.early.asks import Answer, Asks
from stateflow.scale.early.restore import EarlyRestore, Watchers
from stateflow.scale.engine import InProcess, Lanes
from stateflow.scale.processes import Processes

Connect = Callable[[], Cluster]


def wanted_keys(texts: Sequence[str]) -> list[tuple[str, str]]:
    """``STORE=KEY`` as store and key. Raises ``ConfigError``."""
    found = []
    for text in texts:
        store, equals, key = text.partition("=")
        if not equals:
            raise ConfigError(f"--key {text} names no key.", action="write --key STORE=KEY.")
        found.append((store, key))
    return found


def show_bounds(catalog: Catalog, decided: Sequence[Decided], keys: Sequence[tuple[str, str]]) -> None:
    """How much is read at most before each key is answered."""
    if not keys:
        return
    plans = {task.job.task: task.plan for task in decided if task.plan is not None}
    asks, rows = Asks(catalog, plans), list[tuple[str, str, str, int]]()
    for store, key in keys:
        ask = asks.ask(store, key, 0.0)
        awaited = [plan for task in ask.tasks for plan in plans[task].stores if ask.awaits(plan.store)]
        rows.append((store, key, ", ".join(ask.tasks), sum(plan.offsets.slots for plan in awaited)))
    emit_table(("store", "key", "tasks that may have it", "offsets at most"), rows)


def restore_early(
    connect: Connect,
    catalog: Catalog,
    jobs: Sequence[RestoreJob],
    state_dir: Path,
    lanes: int,
    keys: Sequence[tuple[str, str]],
    report: Callable[[Progress], None],
    on_answer: Callable[[Answer], None],
) -> list[Outcome]:
    """Restore newest first, answering for keys on the way: those given, and what is asked over loopback."""
    from stateflow.query.early_serving import serving

    app, cluster = catalog.app.app, connect()
    try:
        with _lanes(connect, cluster, lanes) as used, interrupts_noted() as is_interrupted:
            restore = EarlyRestore(cluster, catalog, jobs, used, SystemClock())
            for store, key in keys:
                restore.ask(store, key)
            with serving(restore, state_dir, app) as url:
                click.echo(
                    f"Keys are answered meanwhile: `stateflow state get STORE KEY --app {app} --state-dir {state_dir}`;"
                    f" programs ask {url}, see {state_dir / app / 'serving.json'}.",
                    err=True,
                )
                return restore.run(Watchers(report=report, on_answer=on_answer, cancelled=is_interrupted))
    finally:
        cluster.close()


@contextmanager
def _lanes(connect: Connect, cluster: Cluster, lanes: int) -> Iterator[Lanes]:
    if lanes == 1:
        yield InProcess(cluster)
        return
    with Processes(connect, lanes) as processes:
        yield processes


def show_answer(answer: Answer) -> None:
    """One line for a person."""
    values = ", ".join(str(row.value) for row in answer.rows) or "nothing"
    where = "" if answer.task is None else f", {answer.task}"
    match answer.source:
        case "range":
            assert answer.offsets is not None, "a range has offsets"
            found = f"in offsets {answer.offsets.offset_first:,} to {answer.offsets.offset_next:,} of the changelog"
        case "image":
            found = "in the image"
        case "local":
            found = "in the local store"
        case "restored":
            found = "in the restored store"
        case "nothing":
            found = "nowhere in the changelog"
    click.echo(
        printable(f"{answer.store} {answer.key}: {values}  ({found}{where}, after {answer.seconds:.2f} s)")
    )


def tell_bound(bound: dict[str, Any]) -> None:
    """On stderr, at the latest when an answer comes."""
    parts = [f"{bound['slots']:,} offsets are read"]
    if bound["image_bytes"]:
        parts.append(f"{human_bytes(bound['image_bytes'])} of images are fetched")
    about = "" if bound["seconds"] is None else f", which takes about {bound['seconds']:.1f} s"
    click.echo(f"A restore is under way; answered at the latest when {' and '.join(parts)}{about}.", err=True)
