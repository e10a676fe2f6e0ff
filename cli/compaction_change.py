"""`stateflow compaction apply`, `rollback` and `watch`: the commands that change topics."""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from stateflow.cli.compaction_session import (
    Session,
    advice_data,
    advise,
    measure_options,
    objective_of,
    objective_options,
    objectives_of,
    saved_option,
    session,
    topic_options,
    verbose_option,
)
from stateflow.cli.compaction_text import (
    print_advice,
    print_applied,
    print_cleaned,
    print_decision,
    print_size_wait,
)
from stateflow.cli.options import Duration, OutputFile, dry_run_option, json_lines_option
from stateflow.cli.output import emit_json
from stateflow.compaction.advice.fitting import fitting_cleaner, fitting_for_all
from stateflow.compaction.advice.recommendation import Recommendation
from stateflow.compaction.cluster.which_topics import is_ours
from stateflow.compaction.control.broker_settings import (
    BrokerPlan,
    apply_brokers,
    plan_brokers,
    rollback_brokers,
)
from stateflow.compaction.control.change import Applied, apply, require_reachable, rollback
from stateflow.compaction.control.cleaned import Cleaned, CleanerPasses, wait_until_cleaned
from stateflow.compaction.control.decision_log import DecisionLog, News
from stateflow.compaction.control.several import SeveralOptions, SeveralWatchers
from stateflow.compaction.control.size_wait import wait_for_size
from stateflow.compaction.control.watch import WatchOptions
from stateflow.compaction.sensing.measurement import Measurement

_CLEANED_WITHIN_SECONDS = 60.0
_IDLE_SEGMENTS = 3
"""An idle log is touched twice: the first touch may close the open segment only when it is old enough."""


@click.command("apply")
@topic_options
@measure_options
@objective_options
@saved_option
@dry_run_option
@click.option(
    "--broker-settings",
    is_flag=True,
    help="Also give the brokers' cleaners a fitting dedupe buffer and a short backoff: for all their topics.",
)
@click.option(
    "--wait",
    type=Duration(),
    help="Wait at most so long until the log is no larger than predicted; at once if it is that small already.",
)
@click.option(
    "--until-cleaned",
    is_flag=True,
    help="Wait until the cleaner was everywhere once, at most for --wait (60s, or 3 × segment.ms); else exit code 53.",
)
@verbose_option
@json_lines_option
def apply_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    client_config: Path | None,
    dry_run: bool,
    wait: float | None,
    until_cleaned: bool,
    broker_settings: bool,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Measure, recommend, and set what was recommended; `rollback` undoes it.

    Nothing is changed when one of the topics cannot be restored in time: then it says what else would do.
    """
    with session(brokers, client_config, app_id) as opened:
        if not dry_run:
            opened.journal.require_writable("Nothing was changed, as it could not be undone.")
        measured, waits = opened.measured(opened.topics(topics, app_id), options), list[Cleaned]()
        plan = _plan(opened, measured, options, together=app_id is not None) if broker_settings else None
        if plan is not None:
            measured = [replace(found, cleaner=plan.cleaner) for found in measured]
        advices = advise(opened, measured, options, together=app_id is not None)
        chosen = [one.found for one in advices]
        if not as_json:
            print_advice(advices, together=app_id is not None, verbose=verbose)
        elif not all(found.reachable for found in chosen):
            for one in advices:
                emit_json({"recommendation": advice_data(one), "applied": None})
        require_reachable(chosen)
        if plan is not None:
            _change_brokers(opened, plan, dry_run=dry_run, as_json=as_json)
        for one in advices:
            passes = CleanerPasses(opened.admin, one.found.topic) if until_cleaned and not dry_run else None
            applied = apply(opened.admin, one.found, opened.journal, dry_run=dry_run)
            if as_json:
                emit_json({"recommendation": advice_data(one), "applied": applied.to_data()})
            else:
                print_applied(applied)
            if dry_run:
                continue
            if passes is not None:
                waits.append(_await_cleaner(opened, one.found, passes, wait, as_json))
            elif wait:
                _await_size(opened, one.found, wait, as_json)
        for waited in waits:
            waited.require()


def _plan(
    opened: Session, measured: list[Measurement], options: dict[str, Any], *, together: bool
) -> BrokerPlan:
    """What suits the topics named under their objectives, and is safe for all others."""
    asked = objectives_of(opened, measured, options, together=together)
    fitting = [fitting_cleaner(found, objective, costs) for found, objective, costs in asked]
    topics = [found.topic for found in measured]
    return plan_brokers(opened.cluster, opened.admin, measured[0].cleaner, fitting_for_all(fitting), topics)


def _change_brokers(opened: Session, plan: BrokerPlan, *, dry_run: bool, as_json: bool) -> None:
    """Set the plan on every broker."""
    applied = apply_brokers(opened.admin, plan, opened.journal, dry_run=dry_run)
    if as_json:
        emit_json({"brokers": [one.to_data() for one in applied], "plan": asdict(plan)})
        return
    if not applied:
        click.echo("brokers: their cleaner settings suit these topics")
    for one in applied:
        print_applied(one)


def _cleaned_within_seconds(found: Recommendation) -> float:
    """How long to wait for the cleaner when nobody said: long enough for an idle log to close its segment."""
    return max(_CLEANED_WITHIN_SECONDS, _IDLE_SEGMENTS * found.best.policy.segment_ms / 1000)


def _touch_every_seconds(opened: Session, found: Recommendation) -> float | None:
    """How often an idle changelog of ours is touched: as often as a touch can close a segment."""
    if not is_ours(opened.cluster, found.topic):
        return None
    return max(1.0, found.best.policy.segment_ms / 1000)


def _await_cleaner(
    opened: Session, found: Recommendation, passes: CleanerPasses, wait: float | None, as_json: bool
) -> Cleaned:
    cleaned = wait_until_cleaned(
        opened.cluster,
        opened.admin,
        found.topic,
        deadline_seconds=wait or _cleaned_within_seconds(found),
        touch_every_seconds=_touch_every_seconds(opened, found),
        since=passes,
        progress=lambda seconds, done, of: click.echo(f"{seconds:6.1f} s  {done} of {of} cleaned", err=True),
    )
    if as_json:
        emit_json({"cleaned": {**asdict(cleaned), "reached": cleaned.reached}})
    else:
        print_cleaned(cleaned)
    return cleaned


def _await_size(opened: Session, found: Recommendation, deadline_seconds: float, as_json: bool) -> None:
    waited = wait_for_size(
        opened.cluster,
        opened.admin,
        found.topic,
        bytes_at_most=found.best.size_max_stressed_bytes,
        deadline_seconds=deadline_seconds,
        touch_every_seconds=_touch_every_seconds(opened, found),
        progress=lambda seconds, size: click.echo(f"{seconds:6.1f} s  {size:,} bytes", err=True),
    )
    if as_json:
        emit_json({"waited": asdict(waited)})
    else:
        print_size_wait(waited)


@click.command("rollback")
@topic_options
@dry_run_option
@click.option("--force", is_flag=True, help="Also when somebody changed the same settings since.")
@click.option("--broker-settings", is_flag=True, help="Put back the brokers' cleaner settings (too).")
@json_lines_option
def rollback_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    client_config: Path | None,
    dry_run: bool,
    force: bool,
    broker_settings: bool,
    as_json: bool,
) -> None:
    """Put back what stood before the newest `apply` or `watch` on this machine.

    All of it is checked before anything is put back.
    """
    with session(brokers, client_config, app_id) as opened:
        chosen = opened.topics(topics, app_id) if topics or app_id or not broker_settings else []
        on_record = [topic for topic in chosen if opened.journal.last_applied(topic) is not None]
        if on_record and app_id:
            chosen = on_record  # a changelog that was never changed has nothing to put back
        if not dry_run:
            for topic in chosen:
                rollback(opened.admin, topic, opened.journal, dry_run=True, force=force)
            if broker_settings:
                rollback_brokers(opened.admin, opened.journal, dry_run=True, force=force)
        for topic in chosen:
            _print_undone(
                rollback(opened.admin, topic, opened.journal, dry_run=dry_run, force=force), as_json
            )
        if broker_settings:
            for undone in rollback_brokers(opened.admin, opened.journal, dry_run=dry_run, force=force):
                _print_undone(undone, as_json)


def _print_undone(undone: Applied, as_json: bool) -> None:
    if as_json:
        emit_json(undone.to_data())
    else:
        print_applied(undone)


@click.command("watch")
@topic_options
@measure_options
@objective_options
@dry_run_option
@click.option("-v", "--verbose", is_flag=True, help="Every look, not only what is new, and once a minute.")
@click.option(
    "--interval",
    type=Duration(is_above_zero=True),
    default=1.0,
    show_default=True,
    help="Time between two looks.",
)
@click.option("--for", "duration", type=Duration(), help="Stop after so long. [default: until Ctrl-C]")
@click.option(
    "--log",
    "log_file",
    type=OutputFile(makes_folder=True),
    help="Keep the decisions as lines of JSON in this file, at most 2 MiB.",
)
@json_lines_option
def watch_command(
    topics: tuple[str, ...],
    app_id: str | None,
    brokers: str,
    client_config: Path | None,
    dry_run: bool,
    verbose: bool,
    interval: float,
    duration: float | None,
    log_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Keep topics within a restore time while their load changes; says what it decides and why."""
    with session(brokers, client_config, app_id) as opened:
        watchers = SeveralWatchers(
            opened.cluster,
            opened.admin,
            opened.topics(topics, app_id),
            objective_of(options),
            opened.journal,
            measure=lambda topic: opened.measure(topic, options),
            costs=opened.costs,
            options=SeveralOptions(together=app_id is not None, watch=WatchOptions(dry_run=dry_run)),
        )
        log, news = None if log_file is None else DecisionLog(log_file), News()
        looks = None if duration is None else max(1, round(duration / interval))
        stop = threading.Event()
        while looks is None or looks > 0:
            for topic, decision in watchers.look():
                if log is not None:
                    log.add(topic, decision)
                if as_json:
                    emit_json({"topic": topic, **asdict(decision)})
                elif news.is_news(topic, decision) or verbose:
                    print_decision(topic, decision)
            looks = None if looks is None else looks - 1
            stop.wait(interval)
