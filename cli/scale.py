"""`stateflow scale`: change the partition count of an application, keeping all state and unread input."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from stateflow.catalog.model import Catalog, RoutingEntry
from stateflow.cli.application import connected, connector
from stateflow.cli.confirm import confirm
from stateflow.cli.image_generations import ImageGenerations, image_generations
from stateflow.cli.options import (
    app_id_option,
    brokers_override,
    dry_run_option,
    json_option,
    optional_target_argument,
    stacked,
    yes_option,
)
from stateflow.cli.output import emit_json
from stateflow.cli.scale_merge import merge
from stateflow.cli.scale_text import (
    RepartitionProgress,
    outcome_data,
    plan_data,
    print_generations,
    print_outcome,
    print_plan,
)
from stateflow.cli.target import chosen
from stateflow.clock import SystemClock
from stateflow.config import AppOptions
from stateflow.log.base import Cluster
from stateflow.scale import generation as generations
from stateflow.scale.engine import Engine, InProcess
from stateflow.scale.past_runs import PastRuns
from stateflow.scale.plan import Plan, make_plan
from stateflow.scale.processes import Processes
from stateflow.scale.scope import moved_topics
from stateflow.scale.start import start

LOCAL_LANES = 2
PROCESSES_FROM_SLOTS = 300_000
"""Processes take a second to start; from so much on they pay, as each has a core of its own."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change that the command line asks for."""

    partitions: int | None
    split: int | None
    merge: tuple[int, int] | None
    ranges: bool

    def routing(self, catalog: Catalog) -> RoutingEntry:
        """The routing it leads to."""
        return generations.target_routing(
            catalog, partitions=self.partitions, split=self.split, merge=self.merge, ranges=self.ranges
        )


target_options = stacked(optional_target_argument, app_id_option, brokers_override, json_option)
change_options = stacked(
    click.option(
        "--partitions", type=click.IntRange(min=1), metavar="M", help="The new number of partitions."
    ),
    click.option("--split", type=click.IntRange(min=0), metavar="P", help="Split one partition in two."),
    click.option("--merge", type=click.IntRange(min=0), nargs=2, metavar="P Q", help="Merge two partitions."),
    click.option(
        "--ranges", is_flag=True, help="Route by hash ranges, so that single partitions can be split later."
    ),
)
engine_option = click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="Who moves the state: Spark tasks, or this machine alone (threads, or processes if there is much).",
)


@click.group()
def command() -> None:
    """Change the number of partitions, keeping all state."""


command.add_command(merge)
absorb = copy(merge)
"""The former name of `scale merge`."""
absorb.hidden = True
command.add_command(absorb, "absorb")


@command.command()
@target_options
@change_options
@engine_option
@click.option("--count", is_flag=True, help="Count the keys, which reads everything once.")
def plan(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    as_json: bool,
    engine: str,
    count: bool,
    **change: Any,
) -> None:
    """Show what would move, and between which times it would take.

    That is predicted from the repartitions made on this machine, else from a probe of less than a second.
    """
    app, options = _chosen(target, app_id, brokers)
    with connected(options) as cluster:
        planned = _plan(cluster, app, Change(**change), engine, count_keys=count)
        _show_plan(planned, _images(cluster, app, options), as_json=as_json)


@command.command(name="start")
@target_options
@change_options
@engine_option
@dry_run_option
def start_command(
    target: str | None,
    app_id: str | None,
    brokers: str | None,
    as_json: bool,
    engine: str,
    dry_run: bool,
    **change: Any,
) -> None:
    """Repartition while no worker runs; started again after a failure, it resumes."""
    wanted = Change(**change)
    app, options = _chosen(target, app_id, brokers)
    with connected(options) as cluster:
        images = _images(cluster, app, options)
        if dry_run:
            planned = _plan(cluster, app, wanted, engine, asks_brokers=True, count_keys=False)
            _show_plan(planned, images, as_json=as_json)
            return
        catalog = generations.load_catalog(cluster, app)
        routing = wanted.routing(catalog)
        generations.check_change(catalog, routing)
        generations.await_stopped(cluster, app)  # before Spark takes its seconds to start
        if images is not None and (left_behind := images.left_behind()):
            click.echo(left_behind, err=True)
        past, resumes, started_at = PastRuns(), generations.preparing(catalog) is not None, time.monotonic()
        with _engine(engine, cluster, options, catalog) as runner:
            outcome = start(
                cluster,
                app,
                routing,
                runner,
                SystemClock(),
                on_progress=RepartitionProgress(),
                past=past.read(),
                seconds_starting=time.monotonic() - started_at,
            )
        if not resumes:  # part of the work of one that was resumed was done before
            past.add(outcome.run(SystemClock()))
    if as_json:
        emit_json(outcome_data(outcome))
    else:
        print_outcome(outcome)


@command.command()
@target_options
def status(target: str | None, app_id: str | None, brokers: str | None, as_json: bool) -> None:
    """Show all generations of an application."""
    app, options = _chosen(target, app_id, brokers)
    with connected(options) as cluster:
        catalog = generations.load_catalog(cluster, app)
        workers = len(cluster.group_members(app))
    if as_json:
        entries = sorted(catalog.generations.values(), key=lambda entry: entry.generation)
        emit_json({"app": app, "workers": workers, "generations": msgspec.to_builtins(entries)})
    else:
        print_generations(catalog, workers)


@command.command()
@target_options
@dry_run_option
@yes_option
def finalize(
    target: str | None, app_id: str | None, brokers: str | None, as_json: bool, dry_run: bool, yes: bool
) -> None:
    """Delete the topics of generations that are no longer needed."""
    app, options = _chosen(target, app_id, brokers)
    with connected(options) as cluster:
        topics = generations.finalizable(generations.load_catalog(cluster, app))
        if topics and not dry_run:
            confirm(f"Delete {len(topics)} topic(s): {', '.join(topics)}?", yes=yes, as_json=as_json)
            topics = generations.finalize(cluster, app)
    if as_json:
        emit_json(
            {"app": app, "deleted": [] if dry_run else topics, "would_delete": topics if dry_run else []}
        )
        return
    word = "Would delete" if dry_run else "Deleted"
    click.echo(f"{word} {', '.join(topics)}." if topics else "Nothing to delete.")


@command.command()
@target_options
@dry_run_option
@yes_option
def abort(
    target: str | None, app_id: str | None, brokers: str | None, as_json: bool, dry_run: bool, yes: bool
) -> None:
    """Undo an unfinished change; the generation before it was never touched."""
    app, options = _chosen(target, app_id, brokers)
    with connected(options) as cluster:
        entry = generations.unfinished(generations.load_catalog(cluster, app))
        if not dry_run:
            confirm(
                f"Drop generation {entry.generation} with its {len(entry.topic_ids)} topic(s)?",
                yes=yes,
                as_json=as_json,
            )
            entry = generations.abort(cluster, app)
    if as_json:
        emit_json({"app": app, "generation": entry.generation, "aborted": not dry_run})
        return
    click.echo(f"Generation {entry.generation} {'would be' if dry_run else 'is'} aborted.")


def _chosen(target: str | None, app_id: str | None, brokers: str | None) -> tuple[str, AppOptions]:
    found = chosen(target, app_id, brokers)
    return found.app, found.options


@contextmanager
def _engine(name: str, cluster: Cluster, options: AppOptions, catalog: Catalog) -> Iterator[Engine]:
    if name == "local":
        if _local_kind(cluster, catalog) == "local":
            yield InProcess(cluster, LOCAL_LANES)
            return
        with Processes(connector(options), os.cpu_count() or LOCAL_LANES) as processes:
            yield processes
        return
    from stateflow.spark.connection import Connection
    from stateflow.spark.engine import SparkEngine
    from stateflow.spark.session import SparkSettings, spark_session

    with spark_session(SparkSettings(app_name="stateflow-repartition", is_python=True)) as session:
        yield SparkEngine(session, Connection(options.brokers, options.client))


def _local_kind(cluster: Cluster, catalog: Catalog) -> str:
    """What "local" stands for, by how much there is to read."""
    sources = [
        source
        for topic in moved_topics(catalog)
        for source in topic.partitions(catalog, catalog.active.generation)
    ]
    slots = sum(offsets.slots for offsets in cluster.ranges(sources).values())
    return "local" if slots < PROCESSES_FROM_SLOTS else "processes"


def _plan(
    cluster: Cluster, app: str, change: Change, engine: str, *, asks_brokers: bool = False, count_keys: bool
) -> Plan:
    """The plan of a change that is possible; ``asks_brokers`` whether they would create its topics, which takes the
    right to create them.
    """
    catalog = generations.load_catalog(cluster, app)
    routing = change.routing(catalog)
    if asks_brokers:
        generations.check_possible(cluster, catalog, routing)
    else:
        generations.check_change(catalog, routing)
    # Before Spark runs its lanes are unknown: those of a session on this machine are assumed.
    return make_plan(
        cluster,
        catalog,
        routing,
        lanes=LOCAL_LANES,
        engine=_local_kind(cluster, catalog) if engine == "local" else engine,
        past=PastRuns().read(),
        count_keys=count_keys,
    )


def _images(cluster: Cluster, app: str, options: AppOptions) -> ImageGenerations | None:
    return image_generations(generations.load_catalog(cluster, app), options)


def _show_plan(plan: Plan, images: ImageGenerations | None, *, as_json: bool) -> None:
    if as_json:
        emit_json({**plan_data(plan), "images_left_behind": None if images is None else images.data()})
        return
    print_plan(plan)
    if images is not None and (left_behind := images.left_behind()):
        click.echo(left_behind)
