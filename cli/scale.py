"""`stateflow scale`: change the number of partitions of an application, keeping all state and unread
input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import click
import msgspec

from stateflow.catalog.model import Catalog, GenerationEntry, RoutingEntry
from stateflow.cli.options import app_id_option, brokers_option, dry_run_option, json_option, yes_option
from stateflow.cli.output import emit_json, emit_pairs, emit_table, human_bytes
from stateflow.cli.target import application_id
from stateflow.clock import SystemClock
from stateflow.errors import Interrupted
from stateflow.log.base import Cluster
from stateflow.log.kafka import KafkaCluster
from stateflow.scale import generation as generations
from stateflow.scale.engine import Engine, InProcess
from stateflow.scale.plan import Plan, make_plan
from stateflow.scale.progress import Progress
from stateflow.scale.start import Outcome, start

LOCAL_LANES = 2


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


def _stack(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


target_options = _stack(
    click.argument("target", metavar="[APP]", required=False), app_id_option, brokers_option, json_option
)
change_options = _stack(
    click.option(
        "--partitions", type=click.IntRange(min=1), metavar="M", help="The new number of partitions."
    ),
    click.option("--split", type=click.IntRange(min=0), metavar="P", help="Split one partition in two."),
    click.option("--merge", type=click.IntRange(min=0), nargs=2, metavar="P Q", help="Merge two partitions."),
    click.option(
        "--ranges", is_flag=True, help="Route by hash ranges, so that single partitions can be split later."
    ),
    click.option("--engine", type=click.Choice(["spark", "local"]), default="spark", show_default=True),
)


@click.group()
def command() -> None:
    """Change the number of partitions, keeping all state."""


@command.command()
@target_options
@change_options
@click.option("--count", is_flag=True, help="Count the keys, which reads everything once.")
def plan(
    target: str | None,
    app_id: str | None,
    brokers: str,
    as_json: bool,
    engine: str,
    count: bool,
    **change: Any,
) -> None:
    """Show what would move, and how long it would take."""
    app = application_id(target, app_id)
    with _connected(brokers) as cluster:
        _show_plan(_plan(cluster, app, Change(**change), engine, count_keys=count), as_json=as_json)


@command.command(name="start")
@target_options
@change_options
@dry_run_option
def start_command(
    target: str | None,
    app_id: str | None,
    brokers: str,
    as_json: bool,
    engine: str,
    dry_run: bool,
    **change: Any,
) -> None:
    """Repartition while no worker runs; started again after a failure, it resumes."""
    app, wanted = application_id(target, app_id), Change(**change)
    with _connected(brokers) as cluster:
        if dry_run:
            _show_plan(_plan(cluster, app, wanted, engine, count_keys=False), as_json=as_json)
            return
        routing = wanted.routing(generations.load_catalog(cluster, app))
        generations.refuse_while_running(cluster, app)  # before Spark takes its seconds to start
        with _engine(engine, cluster, brokers) as runner:
            report = None if as_json else _show_progress
            outcome = start(cluster, app, routing, runner, SystemClock(), on_progress=report)
    _show_outcome(outcome, as_json=as_json)


@command.command()
@target_options
def status(target: str | None, app_id: str | None, brokers: str, as_json: bool) -> None:
    """Show all generations of an application."""
    app = application_id(target, app_id)
    with _connected(brokers) as cluster:
        catalog = generations.load_catalog(cluster, app)
        workers = len(cluster.group_members(app))
    rows = sorted(catalog.generations.values(), key=lambda entry: entry.generation)
    if as_json:
        emit_json({"app": app, "workers": workers, "generations": msgspec.to_builtins(rows)})
        return
    emit_pairs([("application", app), ("workers", workers)])
    emit_table(
        ["generation", "state", "partitions", "routing", "topics", "audit"],
        [
            [
                row.generation,
                row.state,
                row.partitions,
                row.routing.kind,
                len(row.topic_ids),
                _audit_text(row),
            ]
            for row in rows
        ],
    )


@command.command()
@target_options
@dry_run_option
@yes_option
def finalize(
    target: str | None, app_id: str | None, brokers: str, as_json: bool, dry_run: bool, yes: bool
) -> None:
    """Delete the topics of generations that are no longer needed."""
    app = application_id(target, app_id)
    with _connected(brokers) as cluster:
        topics = generations.finalizable(generations.load_catalog(cluster, app))
        if topics and not dry_run:
            _confirm(f"Delete {len(topics)} topic(s): {', '.join(topics)}?", yes=yes or as_json)
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
    target: str | None, app_id: str | None, brokers: str, as_json: bool, dry_run: bool, yes: bool
) -> None:
    """Undo an unfinished change; the generation before it was never touched."""
    app = application_id(target, app_id)
    with _connected(brokers) as cluster:
        entry = generations.unfinished(generations.load_catalog(cluster, app))
        if not dry_run:
            _confirm(
                f"Drop generation {entry.generation} with its {len(entry.topic_ids)} topic(s)?",
                yes=yes or as_json,
            )
            entry = generations.abort(cluster, app)
    if as_json:
        emit_json({"app": app, "generation": entry.generation, "aborted": not dry_run})
        return
    click.echo(f"Generation {entry.generation} {'would be' if dry_run else 'is'} aborted.")


@contextmanager
def _connected(brokers: str) -> Iterator[Cluster]:
    cluster = KafkaCluster(brokers)
    try:
        yield cluster
    finally:
        cluster.close()


@contextmanager
def _engine(name: str, cluster: Cluster, brokers: str) -> Iterator[Engine]:
    if name == "local":
        with nullcontext(InProcess(cluster, LOCAL_LANES)) as engine:
            yield engine
        return
    from stateflow.spark.connection import Connection
    from stateflow.spark.engine import SparkEngine
    from stateflow.spark.session import SparkSettings, spark_session

    with spark_session(SparkSettings(app_name="stateflow-repartition")) as session:
        yield SparkEngine(session, Connection(brokers))


def _plan(cluster: Cluster, app: str, change: Change, engine: str, *, count_keys: bool) -> Plan:
    catalog = generations.load_catalog(cluster, app)
    # Spark's lanes are the machine's or the cluster's; before it runs, the two of a local session are
    # assumed.
    assert engine in ("spark", "local"), "click offers no other"
    return make_plan(cluster, catalog, change.routing(catalog), lanes=LOCAL_LANES, count_keys=count_keys)


def _confirm(question: str, *, yes: bool) -> None:
    if not yes and not click.confirm(question):
        raise Interrupted("Nothing was done.", action="give --yes to go ahead without being asked.")


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        emit_json({**asdict_plan(plan)})
        return
    emit_pairs(
        [
            ("application", plan.app),
            (
                "generation",
                f"{plan.generation_from} → {plan.generation_to}" + (" (resumed)" if plan.resumes else ""),
            ),
            ("partitions", f"{plan.routing_from.partitions} → {plan.routing_to.partitions}"),
            ("to read", f"{plan.slots_total:,} offset slots, about {human_bytes(plan.bytes_total)}"),
            ("predicted", f"{plan.seconds_predicted:.0f} s"),
        ]
    )
    emit_table(
        ["moves", "topic", "partition", "slots", "bytes", "keys"],
        [
            [
                row.name,
                row.source.topic,
                row.source.partition,
                row.offsets.slots,
                human_bytes(row.bytes_estimated),
                "–" if row.keys is None else row.keys,
            ]
            for row in plan.partitions
        ],
    )


def asdict_plan(plan: Plan) -> dict[str, Any]:
    """The plan as JSON-ready data."""
    return {
        "app": plan.app,
        "generation_from": plan.generation_from,
        "generation_to": plan.generation_to,
        "partitions_from": plan.routing_from.partitions,
        "partitions_to": plan.routing_to.partitions,
        "resumes": plan.resumes,
        "slots_total": plan.slots_total,
        "bytes_total": plan.bytes_total,
        "seconds_predicted": plan.seconds_predicted,
        "partitions": [
            {
                "name": row.name,
                "topic": row.source.topic,
                "partition": row.source.partition,
                "offset_first": row.offsets.offset_first,
                "offset_next": row.offsets.offset_next,
                "bytes": row.bytes_estimated,
                "keys": row.keys,
            }
            for row in plan.partitions
        ],
    }


def _show_progress(progress: Progress) -> None:
    share = progress.slots_done / progress.slots_total if progress.slots_total else 1.0
    eta = f", {progress.eta_seconds:.0f} s left" if progress.eta_seconds is not None else ""
    click.echo(
        f"moving {progress.slots_done:,} of {progress.slots_total:,} slots ({share:.0%}),"
        f" {progress.rate:,.0f}/s{eta}",
        err=True,
    )


def _show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        audit = msgspec.to_builtins(outcome.audit)
        fields = {key: value for key, value in asdict(outcome).items() if key != "audit"}
        emit_json({**fields, "records_per_second": outcome.records_per_second, "audit": audit})
        return
    emit_table(
        ["store", "partition", "keys before", "keys after", "equal"],
        [
            [row.store, row.partition, row.keys_before, row.keys_after, "yes" if row.equal else "NO"]
            for row in outcome.audit
        ],
    )
    emit_pairs(
        [
            ("application", outcome.app),
            ("generation", f"{outcome.generation_from} → {outcome.generation_to} (active)"),
            ("partitions", f"{outcome.partitions_from} → {outcome.partitions_to}"),
            ("keys", f"{outcome.keys_total:,}, and {outcome.unread_total:,} unread records"),
            ("moved", f"{outcome.records_read_total:,} records in {outcome.seconds_moving:.1f} s"),
            ("audited", f"{outcome.seconds_auditing:.1f} s, {len(outcome.audit)} ranges, all equal"),
            ("in all", f"{outcome.seconds_total:.1f} s ({outcome.seconds_predicted:.0f} s predicted)"),
            ("next", "start the workers; `stateflow scale finalize` then deletes the old topics"),
        ]
    )


def _audit_text(entry: GenerationEntry) -> str:
    if not entry.audit:
        return "–"
    equal = sum(row.equal for row in entry.audit)
    return f"{equal} of {len(entry.audit)} ranges equal"
