"""What a savepoint made of rows is to be: the application as its code says, its tasks, where each begins to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from stateflow.bootstrap.encoding import RowEncoder
from stateflow.catalog.model import Catalog, GenerationEntry
from stateflow.catalog.names import SAVEPOINT_NAME, changelog_topic, task_id
from stateflow.checkpoint.locations import open_objects, written_down
from stateflow.checkpoint.savepoints import SavepointObjects, find_savepoints
from stateflow.clock import Clock
from stateflow.errors import ConfigError
from stateflow.log.base import Cluster
from stateflow.operators.topology.topology import Topology
from stateflow.record import TopicPartition
from stateflow.runtime.worker.prepare import expected_catalog

Sources = Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]]
"""Where sources are read from: their beginning, their end, or the next offset of each partition by topic."""

TOPIC_ID = "written"
"""What an image says of its changelog's id: there is no such topic, and a restore of the savepoint does not ask."""


@dataclass(frozen=True, slots=True)
class TaskOf:
    """One task of the application."""

    stage: str
    partition: int

    @property
    def id(self) -> str:
        """As images are named."""
        return task_id(self.stage, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapPlan:
    """A savepoint to be, fixed before the first row is read."""

    name: str
    number: int
    location: str
    topology: Topology
    catalog: Catalog
    """With one active generation, whose routing is that of the savepoint."""
    positions: Mapping[TopicPartition, int]
    """Next offset of each source partition."""
    cluster_id: str
    created_ms: int

    @property
    def app(self) -> str:
        """The application's id."""
        return self.catalog.app.app

    @property
    def generation(self) -> GenerationEntry:
        """The generation that the savepoint says it is of."""
        return self.catalog.active

    def objects(self, clock: Clock) -> SavepointObjects:
        """Where its objects go."""
        return SavepointObjects(open_objects(self.location), self.app, self.name, self.number, clock)

    def tasks(self) -> list[TaskOf]:
        """Every task, in order."""
        return [
            TaskOf(stage, partition)
            for stage in self.catalog.stages
            for partition in range(self.catalog.partitions(stage))
        ]

    def encoder(self, store: str) -> RowEncoder:
        """What encodes rows of a store. Raises ``ConfigError`` for a store that cannot be written."""
        entry = self.catalog.stores.get(store)
        if entry is None:
            raise ConfigError(
                f"{self.app!r} has no store {store!r}.",
                action=f"its stores are: {', '.join(sorted(self.catalog.stores)) or 'none'}.",
                store=store,
            )
        rewriter = self.topology.stage(entry.stage).rewriters.get(store)
        is_rekeyed = self.catalog.is_rekeyed(entry.stage)
        return RowEncoder(
            entry,
            self.generation.routing if is_rekeyed else None,
            self.catalog.partitions(entry.stage),
            None if rewriter is None else rewriter(entry),
        )

    def changelogs(self, task: TaskOf) -> dict[str, TopicPartition]:
        """By store, the changelog partition that a task of it would have."""
        return {
            store.name: TopicPartition(changelog_topic(self.app, store.name, 0), task.partition)
            for store in self.catalog.stores.values()
            if store.stage == task.stage
        }


def make_plan(
    cluster: Cluster,
    topology: Topology,
    *,
    name: str,
    location: str,
    sources: Sources,
    partitions: int,
    clock: Clock,
) -> BootstrapPlan:
    """Fix what is to be written. Changes nothing.

    Raises ``ConfigError`` for a name that is none, or offsets that a source does not have, ``TopicMissing``.
    """
    if not SAVEPOINT_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a savepoint.",
            action="take letters, digits, - and _, at most 100.",
            savepoint=name,
        )
    catalog = expected_catalog(cluster, topology, "exactly-once", partitions, clock)
    numbers = [number for _, number in find_savepoints(open_objects(location), topology.app)]
    return BootstrapPlan(
        name=name,
        # No two runs have the same, and no barrier has so large an id.
        number=max(max(numbers, default=-1) + 1, clock.now_ms()),
        location=location if "://" in location else written_down(location),
        topology=topology,
        catalog=catalog,
        positions=_positions(cluster, catalog, sources),
        cluster_id=cluster.cluster_id,
        created_ms=clock.now_ms(),
    )


def _positions(cluster: Cluster, catalog: Catalog, sources: Sources) -> dict[TopicPartition, int]:
    every = [
        TopicPartition(topic, partition)
        for stage in catalog.stages.values()
        for topic in stage.sources
        for partition in range(stage.source_partitions or 0)
    ]
    logs = cluster.ranges(every)
    if sources == "earliest":
        return {source: log.offset_first for source, log in logs.items()}
    if isinstance(sources, str):
        return {source: log.offset_next for source, log in logs.items()}
    positions: dict[TopicPartition, int] = {}
    for source, log in logs.items():
        offset_next = sources.get(source.topic, {}).get(source.partition)
        if offset_next is None or not log.offset_first <= offset_next <= log.offset_next:
            what = "is not said" if offset_next is None else f"is said to be {offset_next}"
            raise ConfigError(
                f"where {source} is to be read from {what}; it has {log.offset_first} to {log.offset_next}.",
                action="give the next offset of every partition of every source, or earliest, or latest.",
                topic=source.topic,
                partition=source.partition,
            )
        positions[source] = offset_next
    return positions
