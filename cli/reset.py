"""`stateflow reset`: forget an application's progress and state, or only move its input positions."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import claims_topic, members_topic
from stateflow.catalog.stages import source_stage_inputs
from stateflow.cli.application import configured, connected
from stateflow.cli.confirm import confirm
from stateflow.cli.options import (
    brokers_override,
    dry_run_option,
    json_option,
    state_dir_override,
    target_argument,
    yes_option,
)
from stateflow.cli.output import emit_json, emit_pairs
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError
from stateflow.log.base import Cluster, Committed
from stateflow.operators.topology.topology import Topology
from stateflow.record import TopicPartition
from stateflow.runtime.opening.claims import fenced_claims
from stateflow.runtime.opening.first_positions import is_begun
from stateflow.runtime.worker.prepare import expected_catalog
from stateflow.runtime.worker.topic_ownership import (
    claims_of_others,
    left_positions,
    left_topics,
    recorded_topics,
)
from stateflow.scale.generation import await_stopped


@click.command()
@target_argument
@click.option(
    "--to-earliest",
    is_flag=True,
    help="Keep the state; move the positions that are gone, or whose records are, to the start of their logs, and no"
    " others.",
)
@brokers_override
@state_dir_override
@yes_option
@dry_run_option
@json_option
def command(
    target: str,
    to_earliest: bool,
    brokers: str | None,
    state_dir: Path | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Forget everything that APP has computed: its own topics, its positions, its local state here.

    Source and output topics are never touched. Refused while workers run.
    """
    app = configured(target, brokers=brokers, state_dir=state_dir)
    with connected(app.options) as cluster:
        control = ControlTopic(cluster, app.id)
        if to_earliest:
            catalog = control.load()
            await_stopped(cluster, app.id)
            facts = _accept_gaps(cluster, catalog, yes=yes, dry_run=dry_run, as_json=as_json)
        else:
            left = what_is_left(cluster, app.topology(), app.options.partitions)
            await_stopped(cluster, app.id)
            local = app.options.state_dir / app.id
            facts = _forget(cluster, left, local, yes=yes, dry_run=dry_run, as_json=as_json)
    if as_json:
        emit_json(facts)
    else:
        emit_pairs([(name, ", ".join(v) if isinstance(v, list) else v) for name, v in facts.items()])


@dataclass(frozen=True, slots=True)
class Left:
    """What there is of an application on the cluster."""

    app: str
    topics: list[str]
    kept: list[str]
    """Topics that it recorded, and another application, too: they stay as long as that one is there."""
    sources: list[TopicPartition]


def what_is_left(cluster: Cluster, topology: Topology, partitions: int) -> Left:
    """What a reset deletes and moves. Without a catalog: what the code shows to be of an application that has run.

    Raises ``CatalogMissing`` where there is nothing of it.
    """
    app = topology.app
    control = ControlTopic(cluster, app)
    catalog = control.find().without_details()
    if catalog is None:
        expected = expected_catalog(cluster, topology, "exactly-once", partitions, SystemClock())
        topics = left_topics(cluster, expected)
        if not topics and not left_positions(cluster, expected):
            control.load_topics()  # says that there is none
        beside = cluster.describe([members_topic(app), claims_topic(app), control.topic])
        return Left(app, [*topics, *sorted(beside)], [], source_stage_inputs(expected))
    recorded = recorded_topics(catalog)
    ids = claims_of_others(cluster, app, recorded).ids
    kept = sorted(name for name in recorded if recorded[name] in ids)
    topics = [topic for topic in _own_topics(cluster, catalog) if topic not in kept]
    return Left(app, topics, kept, all_sources(cluster, catalog, topology))


def all_sources(cluster: Cluster, catalog: Catalog, topology: Topology) -> list[TopicPartition]:
    """Partitions of the sources that the catalog knows, and of those in the code: stages that cannot be read, read
    some of these.
    """
    known = source_stage_inputs(catalog)
    declared = {topic for stage in topology.stages for topic in stage.sources} - {at.topic for at in known}
    found = cluster.describe(declared)
    more = [
        TopicPartition(topic, number) for topic in sorted(found) for number in range(found[topic].partitions)
    ]
    return [*known, *more]


def _forget(
    cluster: Cluster, left: Left, local: Path, *, yes: bool, dry_run: bool, as_json: bool
) -> dict[str, Any]:
    app, topics, sources = left.app, left.topics, left.sources
    facts = {
        "app": app,
        "topics_deleted": topics,
        **({"topics_kept_for_others": left.kept} if left.kept else {}),
        "positions_reset": [str(source) for source in sources],
        "state_deleted": str(local) if local.exists() else None,
        "dry_run": dry_run,
    }
    if not dry_run:
        question = f"Forget {len(topics)} topics and {len(sources)} positions of {app!r}?"
        confirm(question, yes=yes, as_json=as_json)
        with fenced_claims(cluster, app, SystemClock()):
            pass  # nobody knows of these writers once their log is gone
        _move_to_start(cluster, app, sources)
        cluster.delete(topics)
        if local.exists():
            shutil.rmtree(local)
    return facts


def _accept_gaps(
    cluster: Cluster, catalog: Catalog, *, yes: bool, dry_run: bool, as_json: bool
) -> dict[str, Any]:
    app, found = catalog.app.app, gaps(cluster, catalog)
    if not dry_run:
        question = f"Move {len(found)} positions of {app!r}, and accept what is missing?"
        confirm(question, yes=yes or not found, as_json=as_json)
        accept(cluster, catalog, found)
    return {
        "app": app,
        "positions_reset": [str(gap.source) for gap in found],
        "why": [str(gap) for gap in found] or "nothing is missing: every position is in its log, and stays",
        "dry_run": dry_run,
    }


@dataclass(frozen=True, slots=True)
class Gap:
    """A position that does not stand for a record of its log any more; None is one that was never committed."""

    source: TopicPartition
    position: Committed | None
    offset_first: int
    """Where the log begins now."""
    is_recreated: bool
    """The topic was deleted and created again."""
    is_lost: bool = False
    """The position is gone, of a log that is there."""

    def __str__(self) -> str:
        then = "none" if self.position is None else str(self.position.offset_next)
        why = "retention removed what is between"
        if self.is_recreated:
            why = "created anew"
        elif self.is_lost:
            why = "the committed position is gone: all is read again"
        return f"{self.source} from {then} to {self.offset_first} ({why})"

    def accepted(self) -> Committed:
        """The position behind the gap. Event time goes on where the log does, and begins anew with a new log."""
        metadata = "" if self.is_recreated or self.position is None else self.position.metadata
        return Committed(self.offset_first, metadata)


def gaps(cluster: Cluster, catalog: Catalog) -> list[Gap]:
    """The source partitions where input is missing; the others go on where they are, as kept state counted them.

    Raises ``ConfigError`` when one is that of a task with state: its commit record holds the position, and would win.
    """
    found, sources = [], source_stage_inputs(catalog)
    committed, logs = cluster.committed(catalog.app.app, sources), cluster.ranges(sources)
    recreated = _recreated(cluster, catalog)
    for source in sources:
        position, offset_first = committed.get(source), logs[source].offset_first
        is_behind = position is not None and position.offset_next < offset_first
        is_lost = position is None and any(is_begun(stage, source) for stage in catalog.stages.values())
        if is_behind or is_lost or source.topic in recreated:
            found.append(Gap(source, position, offset_first, source.topic in recreated, is_lost))
    _refuse_state_on_sources(catalog, {gap.source.topic for gap in found})
    return found


def accept(cluster: Cluster, catalog: Catalog, found: list[Gap]) -> None:
    """Move the positions behind the gaps."""
    cluster.commit(catalog.app.app, {gap.source: gap.accepted() for gap in found})
    if any(gap.is_recreated for gap in found):
        _accept_sources(cluster, catalog)


def _recreated(cluster: Cluster, catalog: Catalog) -> set[str]:
    then = {topic: id for stage in catalog.stages.values() for topic, id in stage.source_ids.items()}
    now = cluster.describe(then)
    return {topic for topic, id in then.items() if topic in now and now[topic].topic_id != id}


def _refuse_state_on_sources(catalog: Catalog, topics: set[str]) -> None:
    """State that follows a source's partitions records the input that it stands for: that record would win."""
    stages = {stage.name for stage in catalog.stages.values() if topics.intersection(stage.sources)}
    bound = sorted(store.name for store in catalog.stores.values() if store.stage in stages)
    if bound:
        raise ConfigError(
            f"{', '.join(sorted(topics))} lack input, and {', '.join(bound)} of {catalog.app.app!r} keep state by their"
            " partitions, and with it the position of the input that it was made from.",
            action="reset without --to-earliest, which forgets that state too, or put key_by before the stateful step.",
            stores=bound,
        )


def _own_topics(cluster: Cluster, catalog: Catalog) -> list[str]:
    """Topics of every generation, the control topic last: until it is gone, a failed reset can be repeated."""
    recorded = {topic for entry in catalog.generations.values() for topic in entry.topic_ids}
    control = ControlTopic(cluster, catalog.app.app).topic
    app = catalog.app.app
    return [*sorted(cluster.describe({*recorded, members_topic(app), claims_topic(app)})), control]


def _move_to_start(cluster: Cluster, app: str, sources: list[TopicPartition]) -> None:
    starts = cluster.ranges(sources)
    cluster.commit(app, {source: Committed(log.offset_first) for source, log in starts.items()})


def _accept_sources(cluster: Cluster, catalog: Catalog) -> None:
    """Note the sources' present ids: that they may have been created anew is known, and wanted."""
    found = cluster.describe(topic for stage in catalog.stages.values() for topic in stage.sources)
    stages = [
        msgspec.structs.replace(stage, source_ids={topic: found[topic].topic_id for topic in stage.sources})
        for stage in catalog.stages.values()
        if stage.sources
    ]
    ControlTopic(cluster, catalog.app.app).write(stages)
