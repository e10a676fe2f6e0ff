"""`stateflow workers`: who runs which task, how warm the standby copies are, and what came too late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import task_id
from stateflow.catalog.stages import input_topic
from stateflow.cli.application import connected
from stateflow.cli.options import app_id_option, brokers_override, json_option, optional_target_argument
from stateflow.cli.output import emit_json, emit_table
from stateflow.cli.target import chosen
from stateflow.clock import Clock, SystemClock
from stateflow.log.base import AssignedMember, Cluster
from stateflow.runtime.event_time.out_of_bounds import KINDS, shown_instant, shown_span
from stateflow.runtime.progress.slowest_inputs import slowest_inputs
from stateflow.runtime.standby.placement_mode import read_membership
from stateflow.runtime.worker.member_records import CopyReport, MemberRecord, OutOfBoundsReport, WaitingReport
from stateflow.runtime.worker.status_reports import WAITING_REPEAT_SECONDS

HELD_HEADER = (
    "task",
    "event time",
    "held back by",
    "through",
    "where nothing came since",
    "behind by",
    "to read",
)
WAITING_HEADER = ("task", "worker", "waits for s", "attempts", "error", "the last one met")
_TOLD_MS_MAX = int(2.5 * 1000 * WAITING_REPEAT_SECONDS)
_HELD = ("task", "reached_ms", "waits_for", "mark_ms", "furthest_ms", "slots")


@click.command()
@optional_target_argument
@app_id_option
@brokers_override
@json_option
def command(target: str | None, app_id: str | None, brokers: str | None, as_json: bool) -> None:
    """Show the workers of APP (or --app ID) and their tasks; of those with standby copies also copies, lag, rate, ETA.

    Lag is in offsets of the changelogs. Workers report at once when they start, stop or warm up, and every 5 s. Below,
    of workers of any kind: tasks that wait for a cause that may pass, the inputs that hold event time back, as of the
    last commits, and records that came too late for a window, or too far ahead of time, in the last hour.
    """
    application = chosen(target, app_id, brokers)
    with connected(application.options) as cluster:
        facts = standby_facts(cluster, application.app, SystemClock())
    if as_json:
        emit_json(facts)
        return
    if not facts["workers"] and facts["members"]:
        emit_table(
            ("worker", "host", "tasks"),
            [[row["worker"], row["host"], ", ".join(row["tasks"]) or "–"] for row in facts["members"]],
        )
    elif not facts["workers"]:
        click.echo(f"no worker of {application.app} runs (`stateflow run APP`)")
    else:
        header = ("task", "worker", "host", "state", "lag", "records/s", "ETA s", "told s ago")
        emit_table(header, [_text_row(copy) for copy in facts["copies"]])
        for worker in (worker for worker in facts["workers"] if worker["native"] is False):
            click.echo(f"{worker['worker']} works in plain Python; `stateflow doctor` on its host says why")
        for task, worker in sorted(facts["warming"].items()):
            click.echo(f"{task} moves to {worker} when its copy has caught up")
    if facts["waiting"]:
        click.echo()
        emit_table(WAITING_HEADER, [_waiting_row(row) for row in facts["waiting"]])
    if facts["slowest_inputs"]:
        click.echo()
        emit_table(HELD_HEADER, [held_row(row) for row in facts["slowest_inputs"]])
    if facts["out_of_bounds"]:
        click.echo()
        header = ("task", "step", "what", "records", "newest", "its time", "off by", "s ago")
        emit_table(header, [_out_of_bounds_row(row) for row in facts["out_of_bounds"]])


def standby_facts(cluster: Cluster, app: str, clock: Clock) -> dict[str, Any]:
    """What the living workers last told: `workers`, `copies` with lag, `warming` tasks, the placement's number.

    `members` are those of the group, workers of any kind; without standby copies their tasks are what is assigned.
    `slowest_inputs` is, of each task whose event time waits for one input while others are further, which one.
    `waiting` are tasks that do not run and are tried again, with what the last attempt met.
    `out_of_bounds` is what tasks have met of late records and of those too far ahead; of workers that have ended, too,
    for as long as the topic keeps it.
    """
    membership = read_membership(cluster, app)
    assigned = cluster.group_assignments(app)
    ids = {member.member_id for member in assigned}
    members = [] if membership is None else [m for m in membership.members.values() if m.member_id in ids]
    placement = None if membership is None else membership.placement
    now_ms = clock.now_ms()
    return {
        "app": app,
        "placement": None if placement is None else placement.number,
        "leader": None if placement is None else placement.leader,
        "members": _member_facts(cluster, app, assigned, members),
        "workers": [
            {
                "worker": m.name,
                "host": m.host,
                "pid": m.pid,
                "disk": m.disk,
                "native": m.native,
                "standby_replicas": m.standby_replicas,
            }
            for m in sorted(members, key=lambda member: member.name)
        ],
        "copies": sorted(
            (_copy_facts(member, copy, now_ms) for member in members for copy in member.copies),
            key=lambda row: (row["task"], row["state"] != "running", row["worker"]),
        ),
        "warming": {} if placement is None else placement.warmup,
        "waiting": [] if membership is None else _waiting_facts(membership.waiting.values(), now_ms),
        "out_of_bounds": []
        if membership is None
        else _out_of_bounds_facts(membership.out_of_bounds.values(), now_ms),
        "slowest_inputs": held_facts(cluster, app),
    }


def _member_facts(
    cluster: Cluster, app: str, assigned: Iterable[AssignedMember], told: Iterable[MemberRecord]
) -> list[dict[str, Any]]:
    """Of each member of the group where it is and what it runs, as it says itself or as the group has assigned it."""
    stages = _primary_stages(ControlTopic(cluster, app).load())
    by_id = {record.member_id: record for record in told}
    return [
        {
            "worker": member.member_id,
            "host": member.host,
            "tasks": sorted(by_id[member.member_id].held)
            if member.member_id in by_id
            else [
                task_id(stages[partition.topic], partition.partition)
                for partition in sorted(member.partitions)
                if partition.topic in stages
            ],
        }
        for member in assigned
    ]


def _primary_stages(catalog: Catalog) -> dict[str, str]:
    """The topic whose partitions are assigned to workers → its stage, as ``task.wiring`` has them."""
    return {input_topic(catalog, stage.inputs[0]): name for name, stage in catalog.stages.items()}


def held_facts(cluster: Cluster, app: str) -> list[dict[str, Any]]:
    """Which input each task's event time waits for, where it waits."""
    catalog = ControlTopic(cluster, app).load()
    return [
        {
            **{name: getattr(held, name) for name in _HELD},
            "source": str(held.source),
            "off_ms": held.off_ms,
            "sentence": held.sentence,
        }
        for held in ([] if catalog is None else slowest_inputs(cluster, catalog))
    ]


def held_row(row: dict[str, Any]) -> list[object]:
    """A line of `HELD_HEADER`."""
    return [
        row["task"],
        "–" if row["reached_ms"] < 0 else shown_instant(row["reached_ms"]),
        row["source"],
        row["waits_for"],
        "nothing has come" if row["mark_ms"] < 0 else shown_instant(row["mark_ms"]),
        "–" if row["off_ms"] is None else shown_span(row["off_ms"]),
        row["slots"],
    ]


def _waiting_facts(reports: Iterable[WaitingReport], now_ms: int) -> list[dict[str, Any]]:
    """Those that were told lately: a worker says it again and again, unless it has ended."""
    return [
        {**msgspec.structs.asdict(report), "waits_seconds": round(max(0, now_ms - report.since_ms) / 1000, 1)}
        for report in sorted(reports, key=lambda report: report.task)
        if now_ms - report.written_ms < _TOLD_MS_MAX
    ]


def _waiting_row(row: dict[str, Any]) -> list[object]:
    return [row[name] for name in ("task", "worker", "waits_seconds", "attempts", "error", "message")]


def _out_of_bounds_facts(reports: Iterable[OutOfBoundsReport], now_ms: int) -> list[dict[str, Any]]:
    return [
        {
            **msgspec.structs.asdict(report),
            "off_ms": report.off_ms,
            "place": report.place,
            "newest_seconds_ago": round(max(0, now_ms - report.newest_ms) / 1000, 1),
        }
        for report in sorted(reports, key=lambda report: (KINDS.index(report.kind), report.task, report.step))
    ]


def _out_of_bounds_row(row: dict[str, Any]) -> list[object]:
    return [
        row["task"],
        row["step"],
        row["kind"],
        row["records_total"],
        row["place"],
        shown_instant(row["timestamp_ms"]),
        shown_span(row["off_ms"]),
        row["newest_seconds_ago"],
    ]


def _copy_facts(member: MemberRecord, copy: CopyReport, now_ms: int) -> dict[str, Any]:
    return {
        "task": copy.task,
        "worker": member.name,
        "host": member.host,
        "state": copy.state,
        "lag_slots": copy.lag_slots,
        "records_per_second": round(copy.records_per_second, 1),
        "eta_seconds": None if copy.eta_seconds is None else round(copy.eta_seconds, 1),
        "told_seconds_ago": round(max(0, now_ms - member.written_ms) / 1000, 1),
    }


def _text_row(copy: dict[str, Any]) -> list[object]:
    shown = (
        "task",
        "worker",
        "host",
        "state",
        "lag_slots",
        "records_per_second",
        "eta_seconds",
        "told_seconds_ago",
    )
    return ["–" if copy[name] is None else copy[name] for name in shown]
