"""`stateflow compaction`: measure a compacted topic, recommend settings for a restore time, apply, undo,
watch.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from stateflow.cli.compaction_session import (
    Session,
    measure_options,
    objective_of,
    objective_options,
    session,
    topic_options,
)
from stateflow.cli.compaction_text import (
    print_applied,
    print_decision,
    print_measurement,
    print_prediction,
    print_recommendation,
    print_settled,
)
from stateflow.cli.options import Duration, brokers_option, dry_run_option, json_option
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.compaction.advice.recommendation import Recommendation
from stateflow.compaction.advice.share import shared_objectives
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.cluster.topics import is_ours
from stateflow.compaction.control.apply import apply, rollback
from stateflow.compaction.control.negotiate import recommend_allowed
from stateflow.compaction.control.settle import settle
from stateflow.compaction.control.watch import Watcher, WatchOptions
from stateflow.compaction.experiment.calibrate import calibrate, save
from stateflow.compaction.model.closed_form import predict
from stateflow.compaction.pages.topic_page import topic_page
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.errors import ConfigError, ObjectiveUnreachable


@click.group()
def command() -> None:
    """Measure changelogs, and tune how Kafka compacts them."""


@command.command("measure")
@topic_options
@measure_options
@json_option
def measure_command(
    topics: tuple[str, ...], app_id: str | None, brokers: str, as_json: bool, **options: Any
) -> None:
    """Measure topics: size, keys, update rate, restore rate, cleaner CPU. Changes nothing."""
    with session(brokers) as opened:
        for topic in opened.topics(topics, app_id):
            found = opened.measure(topic, options)
            if as_json:
                emit_json(found.to_data())
            else:
                print_measurement(found)


@command.command("calibrate")
@brokers_option
@click.option(
    "--seconds", type=Duration(), default=6.0, show_default=True, help="Length of each of four runs."
)
@json_option
def calibrate_command(brokers: str, seconds: float, as_json: bool) -> None:
    """Learn what compaction costs on a local broker, on scratch topics, and keep it for later predictions."""
    with session(brokers) as opened:
        second = ClusterAdmin(brokers)
        try:
            found = calibrate(
                opened.cluster,
                opened.admin,
                second,
                seconds=seconds,
                progress=lambda text: click.echo(text, err=True),
            )
        finally:
            second.close()
        save(found, opened.calibration_path)
        if as_json:
            emit_json({**asdict(found), "path": str(opened.calibration_path)})
            return
        costs = found.costs
        fill = costs.fill_seconds_per_byte * found.cleaner.dedupe_buffer_bytes / found.cleaner.threads
        emit_pairs(
            [
                ("a pass", f"{1000 * (costs.pass_seconds + fill):.1f} ms of CPU"),
                ("a record read", f"{1e6 * costs.read_seconds_per_record:.2f} µs"),
                ("a record written", f"{1e6 * costs.write_seconds_per_record:.2f} µs"),
                ("errors", ", ".join(f"{name} {error:+.1%}" for name, error in found.errors.items())),
                ("kept in", opened.calibration_path),
            ]
        )


@command.command("model")
@topic_options
@measure_options
@click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A topic setting to try; repeat it."
)
@json_option
def model_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    settings: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Predict size, restore time and cleaner CPU of topics, as they are or under other settings."""
    changes = dict(_setting(text) for text in settings)
    with session(brokers) as opened:
        for topic in opened.topics(topics, app_id):
            found = opened.measure(topic, options)
            policy = found.policy.with_config(changes)
            costs = opened.costs(found)
            outcome = predict(found.workload(), policy, found.cleaner, costs)
            if as_json:
                data = {name: value for name, value in asdict(outcome).items() if value != float("inf")}
                emit_json({"topic": topic, "policy": policy.to_config(), "prediction": data})
            else:
                print_prediction(topic, policy, outcome, found.restore, costs)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{text!r} is not a setting.", action="Write --set segment.ms=1000.")
    return name, value


def _recommendations(
    opened: Session, chosen: list[str], options: dict[str, Any], *, together: bool
) -> Iterator[tuple[Measurement, Recommendation]]:
    """Measure and recommend; ``together`` divides the restore time among the topics."""
    path = options.get("measurement")
    measured = [
        Measurement.from_data(json.loads(Path(path).read_text())) if path else opened.measure(topic, options)
        for topic in chosen
    ]
    costs = [opened.costs(found) for found in measured]
    objective = objective_of(options)
    objectives = shared_objectives(measured, objective, costs) if together else [objective] * len(measured)
    for found, cost, wanted in zip(measured, costs, objectives, strict=True):
        provider = options["provider"]
        yield found, recommend_allowed(opened.admin, found, wanted, costs=cost, provider=provider)


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
        chosen = opened.topics(topics, app_id)
        for _, found in _recommendations(opened, chosen, options, together=app_id is not None):
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
        chosen = opened.topics(topics, app_id)
        for _, found in _recommendations(opened, chosen, options, together=app_id is not None):
            applied = apply(opened.admin, found, opened.journal, dry_run=dry_run)
            if as_json:
                emit_json({"recommendation": found.to_data(), "applied": applied.to_data()})
            else:
                print_applied(applied, found)
            if wait and not dry_run:
                _wait(opened, found, wait, as_json)


def _wait(opened: Session, found: Recommendation, deadline_seconds: float, as_json: bool) -> None:
    touch_every = max(1.0, found.best.policy.segment_ms / 1000)
    settled = settle(
        opened.cluster,
        opened.admin,
        found.topic,
        bytes_at_most=found.best.size_max_stressed_bytes,
        deadline_seconds=deadline_seconds,
        touch_every_seconds=touch_every if is_ours(opened.cluster, found.topic) else None,
        progress=lambda seconds, size: click.echo(f"{seconds:6.1f} s  {size:,} bytes", err=True),
    )
    if as_json:
        emit_json({"settled": asdict(settled)})
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
    """Put back what stood before the newest `apply` or `watch` on this machine."""
    with session(brokers) as opened:
        for topic in opened.topics(topics, app_id):
            applied = rollback(opened.admin, topic, opened.journal, dry_run=dry_run, force=force)
            if as_json:
                emit_json(applied.to_data())
            else:
                print_applied(applied, None)


@command.command("watch")
@topic_options
@measure_options
@objective_options
@dry_run_option
@click.option("--interval", type=Duration(), default=1.0, show_default=True, help="Time between two looks.")
@click.option("--for", "duration", type=Duration(), help="Stop after so long. [default: until Ctrl-C]")
@json_option
def watch_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    dry_run: bool,
    interval: float,
    duration: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Keep topics within a restore time while their load changes; says what it decides and why."""
    with session(brokers) as opened:
        watchers = []
        for topic in opened.topics(topics, app_id):
            found = opened.measure(topic, options)
            watchers.append(
                Watcher(
                    opened.cluster,
                    opened.admin,
                    found,
                    objective_of(options),
                    opened.journal,
                    costs=opened.costs(found),
                    options=WatchOptions(dry_run=dry_run),
                )
            )
        looks = None if duration is None else max(1, round(duration / interval))
        stop = threading.Event()
        while looks is None or looks > 0:
            for watcher in watchers:
                decision = watcher.look()
                if as_json:
                    emit_json({"topic": watcher.topic, **asdict(decision)})
                else:
                    print_decision(watcher.topic, decision)
            looks = None if looks is None else looks - 1
            stop.wait(interval)


@command.command("report")
@topic_options
@measure_options
@objective_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("compaction.html"),
    show_default=True,
    help="The file to write.",
)
def report_command(
    topics: tuple[str, ...], app_id: str | None, brokers: str, out: Path, **options: Any
) -> None:
    """Write one HTML page about topics: size over time, the trade-off, the recommendation and its reasons."""
    with session(brokers) as opened:
        chosen = opened.topics(topics, app_id)
        found = list(_recommendations(opened, chosen, options, together=app_id is not None))
    out.write_text(topic_page(found), encoding="utf-8")
    click.echo(f"{out}: {len(found)} topic(s)")
