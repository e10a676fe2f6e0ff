"""Savepoints as text and as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from stateflow.catalog.model import Catalog, SavepointEntry
from stateflow.checkpoint.progress import WORTH_SHOWING_SECONDS, Pace
from stateflow.checkpoint.savepoints import Savepoint
from stateflow.cli.output import emit_json, emit_pairs, emit_table, human_bytes
from stateflow.redaction import shown
from stateflow.savepoint.restore import Plan, Restored

_LINE_SECONDS = 5.0


class Steps:
    """Progress by counted steps on stderr, with rate and time left: one moving line on a terminal, else a line
    now and then. What is done within a second is not shown."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._on_terminal = sys.stderr.isatty()
        self._begun_seconds = self._told_seconds = time.monotonic()
        self._told = -1
        self._pace = Pace()

    def __call__(self, done: int, total: int) -> None:
        """Show it; nothing where nothing has moved."""
        now_seconds = time.monotonic()
        seconds = now_seconds - self._begun_seconds
        self._pace.observe(seconds, done)
        if (
            seconds < WORTH_SHOWING_SECONDS
            or not total
            or done == self._told
            or not (self._on_terminal or done == total or now_seconds - self._told_seconds >= _LINE_SECONDS)
        ):
            return
        self._told, self._told_seconds = done, now_seconds
        eta_seconds = self._pace.eta_seconds(total - done)
        left = f", {eta_seconds:.0f} s left" if eta_seconds else ""
        line = f"{done}/{total} {self._what}, {done / seconds:.1f}/s{left}"
        click.echo(
            f"\r{line}" if self._on_terminal else line, err=True, nl=not self._on_terminal or done == total
        )


def savepoint_data(savepoint: Savepoint, *, every: bool = False) -> dict[str, Any]:
    """A savepoint as JSON; ``every`` task and queue of it on demand."""
    data: dict[str, Any] = {
        "app": savepoint.app,
        "savepoint": savepoint.name,
        "number": savepoint.number,
        "created": _time(savepoint.created_ms),
        "generation": savepoint.generation,
        "partitions": savepoint.routing.partitions,
        "tasks": len(savepoint.tasks),
        "records_in_flight": savepoint.records_in_flight,
        "size_bytes": savepoint.size_bytes,
    }
    if every:
        data["tasks"] = msgspec.to_builtins(savepoint.tasks)
        data["queues"] = msgspec.to_builtins(savepoint.queues)
        data["stores"] = [store.name for store in savepoint.stores]
        data["source_ids"] = savepoint.source_ids
    return data


def print_savepoint(savepoint: Savepoint, location: str) -> None:
    """A savepoint for people."""
    facts = savepoint_data(savepoint)
    facts["size"] = human_bytes(facts.pop("size_bytes"))
    emit_pairs([*facts.items(), ("location", location)])
    rows = [
        (
            task.task,
            ", ".join(f"{at.topic}[{at.partition}]@{at.offset_next}" for at in task.inputs) or "-",
            human_bytes(task.image.size_bytes) if task.image else "-",
        )
        for task in savepoint.tasks
    ]
    emit_table(("task", "goes on at", "state"), rows)


def print_listed(catalog: Catalog, *, as_json: bool) -> None:
    """The savepoints of an application, oldest first."""
    entries = sorted(catalog.savepoints.values(), key=lambda entry: entry.number)
    barrier = catalog.barrier if catalog.barrier is not None and catalog.barrier.state == "open" else None
    if as_json:
        being_made = None if barrier is None else barrier.savepoint
        rows = [
            {
                **msgspec.to_builtins(entry),
                "created": _time(entry.created_ms),
                "partitions": _partitions(catalog, entry),
            }
            for entry in entries
        ]
        emit_json({"app": catalog.app.app, "savepoints": rows, "being_made": being_made})
        return
    if entries:
        emit_table(
            ("savepoint", "created", "generation", "partitions", "tasks", "size", "location"),
            [
                (
                    e.name,
                    _time(e.created_ms),
                    e.generation,
                    _partitions(catalog, e) or "-",
                    e.tasks,
                    human_bytes(e.size_bytes),
                    shown(e.location),
                )
                for e in entries
            ],
        )
        _say_repartitioned(catalog, entries)
    else:
        click.echo("No savepoints.")
    if barrier is not None:
        click.echo(f"{barrier.savepoint} is being made since {_time(barrier.requested_ms)}.")


def _partitions(catalog: Catalog, entry: SavepointEntry) -> int | None:
    """How many partitions a restore brings back; None when the catalog has forgotten that generation."""
    generation = catalog.generations.get(entry.generation)
    return None if generation is None else generation.partitions


def _say_repartitioned(catalog: Catalog, entries: Sequence[SavepointEntry]) -> None:
    active = catalog.active.partitions
    others = [e.name for e in entries if _partitions(catalog, e) not in (None, active)]
    if others:
        click.echo(
            f"{', '.join(others)}: made before the partitions were changed to {active}. A restore brings those back;"
            f" `stateflow scale start --partitions {active}` then changes them again."
        )


def plan_data(plan: Plan, savepoint: Savepoint) -> dict[str, Any]:
    """What a restore would do, as JSON."""
    return {
        "app": plan.app,
        "savepoint": savepoint.name,
        "number": savepoint.number,
        "generation": plan.generation,
        "resumes": plan.resumes,
        "partitions": savepoint.routing.partitions,
        "stores_kept": list(plan.match.kept),
        "stores_empty": list(plan.match.added),
        "stores_dropped": list(plan.match.dropped),
        "steps_dropped": list(plan.match.steps_dropped),
        "records_in_flight": savepoint.records_in_flight,
        "topics": list(plan.topics),
        "sources": {str(at): offset_next for at, offset_next in sorted(plan.positions.items())},
    }


def print_plan(plan: Plan, savepoint: Savepoint) -> None:
    """What a restore would do, for people."""
    shown = plan_data(plan, savepoint)
    sources = ", ".join(f"{at}@{offset}" for at, offset in shown.pop("sources").items())
    pairs = [(name, ", ".join(v) if isinstance(v, list) else v) for name, v in shown.items()]
    emit_pairs([(name, value if value != "" else "-") for name, value in [*pairs, ("sources", sources)]])


def restored_data(done: Restored, savepoint: Savepoint) -> dict[str, Any]:
    """What a restore did, as JSON."""
    return {
        "app": done.app,
        "savepoint": savepoint.name,
        "number": savepoint.number,
        "generation": done.generation,
        "partitions": done.partitions,
        "keys": done.keys_total,
        "records_in_flight": done.records_in_flight_total,
        "stores_kept": list(done.match.kept),
        "stores_empty": list(done.match.added),
        "stores_dropped": list(done.match.dropped),
        "seconds": round(done.seconds, 3),
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
