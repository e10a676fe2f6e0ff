"""`stateflow compaction`: measure a compacted topic, recommend settings for a restore time, apply and undo
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from stateflow.cli.compaction_text import (
    print_applied,
    print_measurement,
    print_recommendation,
    print_settled,
)
from stateflow.cli.options import app_id_option, brokers_option, dry_run_option, json_option
from stateflow.cli.output import emit_json
from stateflow.compaction.admin import ClusterAdmin
from stateflow.compaction.apply import apply, rollback
from stateflow.compaction.journal import Journal
from stateflow.compaction.measure import MeasureOptions, measure
from stateflow.compaction.measurement import Measurement
from stateflow.compaction.negotiate import recommend_allowed
from stateflow.compaction.objective import DEFAULT_TRANSACTION_TIMEOUT_MS, Objective
from stateflow.compaction.recommendation import Recommendation
from stateflow.compaction.settle import settle
from stateflow.compaction.topics import changelogs_of, is_ours
from stateflow.compaction.workload import RestoreRate
from stateflow.errors import ConfigError, ObjectiveUnreachable
from stateflow.log.kafka import KafkaCluster

_UNITS_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Duration(click.ParamType[float]):
    """`500ms`, `20s`, `5m`, `1h`, or seconds without a unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """To seconds."""
        if isinstance(value, int | float):
            return float(value)
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?", str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not a duration; write for example 500ms, 20s, 5m.", param, ctx)
        return float(match[1]) * _UNITS_SECONDS[match[2] or "s"]


@dataclass(frozen=True, slots=True)
class Session:
    """An open cluster: its log, its administration, and the record of changes made to it."""

    cluster: KafkaCluster
    admin: ClusterAdmin
    journal: Journal


@contextmanager
def session(brokers: str) -> Iterator[Session]:
    """Connect, and close at the end."""
    cluster = KafkaCluster(brokers)
    admin = ClusterAdmin(brokers)
    try:
        yield Session(cluster, admin, Journal(cluster.cluster_id))
    finally:
        admin.close()
        cluster.close()


def _topics(opened: Session, topics: tuple[str, ...], app_id: str | None) -> list[str]:
    chosen = [*topics, *(changelogs_of(opened.cluster, app_id) if app_id else ())]
    if not chosen:
        raise ConfigError(
            "No topic was named.", action="Give --topic T (more than once if you like) or --app ID."
        )
    return chosen


def _stack(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


topic_options = _stack(
    click.option("--topic", "topics", multiple=True, help="A compacted topic, ours or not; may be repeated."),
    app_id_option,
    brokers_option,
)
measure_options = _stack(
    click.option(
        "--seconds", type=Duration(), default=5.0, show_default=True, help="How long to watch the topic."
    ),
    click.option("--rate", type=float, help="Updates per second, when the application is not running now."),
    click.option(
        "--restore-rate", type=float, help="Records per second of a real restore; else reading is timed."
    ),
)
objective_options = _stack(
    click.option(
        "--restore-within", type=Duration(), required=True, help="The longest restore you accept, e.g. 20s."
    ),
    click.option(
        "--restorers", type=int, default=1, show_default=True, help="Workers that restore at the same time."
    ),
    click.option(
        "--transaction-timeout",
        type=Duration(),
        default=DEFAULT_TRANSACTION_TIMEOUT_MS / 1000,
        show_default=True,
        help="transaction.timeout.ms of the application, for changelogs with transactions.",
    ),
    click.option(
        "--slowest-replay",
        type=Duration(),
        help="The slowest reader that must see every tombstone. [default: ten restores, at least 60s]",
    ),
    click.option("--disk", type=float, help="Bound on the bytes on disk, replaced files included."),
    click.option("--provider", default="apache", show_default=True, help="apache, confluent-cloud or msk."),
)


@click.group()
def command() -> None:
    """Measure changelogs, and tune how Kafka compacts them."""


def _measure(
    opened: Session, topic: str, seconds: float, rate: float | None, restore: float | None
) -> Measurement:
    given = None if restore is None else RestoreRate(restore, 0.1, "given", 0.1)
    options = MeasureOptions(seconds=seconds, updates_per_second=rate, restore=given)
    return measure(
        opened.cluster,
        topic,
        admin=opened.admin,
        options=options,
        progress=lambda text: click.echo(text, err=True),
    )


@command.command("measure")
@topic_options
@measure_options
@json_option
def measure_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    seconds: float,
    rate: float | None,
    restore_rate: float | None,
    as_json: bool,
) -> None:
    """Measure topics: size, keys, update rate, restore rate, cleaner CPU. Changes nothing."""
    with session(brokers) as opened:
        for topic in _topics(opened, topics, app_id):
            found = _measure(opened, topic, seconds, rate, restore_rate)
            if as_json:
                emit_json(found.to_data())
            else:
                print_measurement(found)


def _recommendations(opened: Session, chosen: list[str], options: dict[str, Any]) -> Iterator[Recommendation]:
    objective = Objective(
        restore_within_seconds=options["restore_within"],
        restorers=options["restorers"],
        transaction_timeout_ms=round(1000 * options["transaction_timeout"]),
        replay_seconds_max=options["slowest_replay"],
        disk_bytes_max=options["disk"],
    )
    path = options.get("measurement")
    for topic in chosen:
        found = (
            Measurement.from_data(json.loads(Path(path).read_text()))
            if path
            else _measure(opened, topic, options["seconds"], options["rate"], options["restore_rate"])
        )
        yield recommend_allowed(opened.admin, found, objective, provider=options["provider"])


@command.command("recommend")
@topic_options
@measure_options
@objective_options
@click.option(
    "--measurement",
    type=click.Path(exists=True, dir_okay=False),
    help="Use a saved `measure --json` of the topic.",
)
@json_option
def recommend_command(
    topics: tuple[str, ...], app_id: str | None, brokers: str, as_json: bool, **options: Any
) -> None:
    """Say which settings restore a topic in time at the least broker CPU. Changes nothing."""
    with session(brokers) as opened:
        unreachable = []
        for found in _recommendations(opened, _topics(opened, topics, app_id), options):
            if as_json:
                emit_json(found.to_data())
            else:
                print_recommendation(found)
            unreachable += [] if found.reachable else [found.topic]
        if unreachable and not as_json:
            raise ObjectiveUnreachable(
                f"Compaction alone does not restore {', '.join(unreachable)} in time.",
                action="Choose one of the alternatives above, or a longer time.",
            )


@command.command("apply")
@topic_options
@measure_options
@objective_options
@dry_run_option
@click.option("--wait", type=Duration(), help="Wait so long for the log to shrink to the predicted size.")
@json_option
def apply_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    dry_run: bool,
    wait: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure, recommend, and set what was recommended; `rollback` undoes it."""
    with session(brokers) as opened:
        for found in _recommendations(opened, _topics(opened, topics, app_id), options):
            applied = apply(opened.admin, found, opened.journal, dry_run=dry_run)
            if as_json:
                emit_json({"recommendation": found.to_data(), "applied": applied.to_data()})
            else:
                print_applied(applied, found)
            if wait and not dry_run:
                _wait(opened, found, wait, as_json)


def _wait(opened: Session, found: Recommendation, deadline_seconds: float, as_json: bool) -> None:
    settled = settle(
        opened.cluster,
        opened.admin,
        found.topic,
        bytes_at_most=found.best.size_max_bytes * 1.05,
        deadline_seconds=deadline_seconds,
        touch_every_seconds=max(1.0, found.best.policy.segment_ms / 1000)
        if is_ours(opened.cluster, found.topic)
        else None,
        progress=lambda seconds, size: click.echo(f"{seconds:6.1f} s  {size:,} bytes", err=True),
    )
    if as_json:
        emit_json({"settled": settled})
    else:
        print_settled(settled)


@command.command("rollback")
@topic_options
@dry_run_option
@click.option("--force", is_flag=True, help="Also when somebody changed the same settings since.")
@json_option
def rollback_command(
    topics: tuple[str, ...], app_id: str | None, brokers: str, dry_run: bool, force: bool, as_json: bool
) -> None:
    """Put back what stood before the newest `apply` on this machine."""
    with session(brokers) as opened:
        for topic in _topics(opened, topics, app_id):
            applied = rollback(opened.admin, topic, opened.journal, dry_run=dry_run, force=force)
            if as_json:
                emit_json(applied.to_data())
            else:
                print_applied(applied, None)
