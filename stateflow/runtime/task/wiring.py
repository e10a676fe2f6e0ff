"""Which topics, partitions and ids one task is bound to, worked out from topology and catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stateflow.catalog.model import Catalog, Guarantee, StageEntry, StoreEntry
from stateflow.catalog.names import changelog_topic, repartition_topic, task_id, transactional_id
from stateflow.catalog.written import Written
from stateflow.checkpoint.changelog_policy import WHOLE_LOGS, ChangelogPolicy
from stateflow.errors import PartitionsAdded
from stateflow.log.base import Writer
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.record import Headers, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.runtime.event_time.watermarks import Port
from stateflow.state.index import DerivedIndex


@dataclass(frozen=True, slots=True)
class Rekey:
    """Where a stage's re-keyed records go: the topic of the active generation, and how keys find a partition."""

    topic: str
    routing: RoutingTable

    def tell(self, writer: Writer, timestamp_ms: int, headers: Headers) -> None:
        """Write a record with neither key nor value, for the tasks themselves, to every partition."""
        nothing = [None] * self.routing.partitions
        writer.send_many(
            self.topic,
            nothing,
            nothing,
            partitions=range(self.routing.partitions),
            timestamps_ms=timestamp_ms,
            headers=[headers] * self.routing.partitions,
        )


@dataclass(frozen=True, slots=True)
class TaskWiring:
    """Everything fixed about a task for as long as its generation is active."""

    app: str
    stage: Stage
    partition: int
    generation: int
    guarantee: Guarantee
    inputs: tuple[TopicPartition, ...]
    """The partition of each input topic, the primary input first."""
    ports: tuple[Port, ...]
    """For each of ``inputs``, who tells event time there."""
    changelogs: Mapping[str, TopicPartition]
    """Store name → its changelog partition."""
    topic_ids: Mapping[str, str]
    """Changelog topic → the topic id that the generation was built with."""
    rekeys: Mapping[str, Rekey]
    entries: Mapping[str, StoreEntry]
    """Store name → the store as the catalog has it, with every schema of which it holds values."""
    log_policy: ChangelogPolicy = WHOLE_LOGS
    """What the catalog says about the changelogs."""
    is_in_order: bool = False
    """True where the input is the records of one source partition as they come: with each, event time has come so far.

    Behind several tasks a record does not say from which it is. Behind a task with state, what time makes it send
    comes between the records.
    """
    stage_tasks: int = 1
    """How many tasks the stage has."""
    indexes: tuple[DerivedIndex, ...] = ()
    """Indexes of the stores: derived, and in no changelog."""
    outputs: frozenset[str] = frozenset()
    """Output topics that the stage's tasks write to, or have written to with former code."""

    @property
    def written(self) -> Written:
        """What the task's stage writes."""
        stage = self.stage.name
        return Written({stage: frozenset(self.stage.rekeys)}, {stage: frozenset(self.entries)})

    @property
    def id(self) -> str:
        """``<stage>-<partition>``."""
        return task_id(self.stage.name, self.partition)

    @property
    def group(self) -> str:
        """The consumer group under which input offsets are committed: the application's id."""
        return self.app

    @property
    def transactional_id(self) -> str:
        """The id whose newest owner alone may write for this task."""
        return transactional_id(self.app, self.generation, self.id)

    @property
    def is_transactional(self) -> bool:
        """True for a task that has a transactional id: all but those that keep nothing, at least once."""
        return is_transactional(self.guarantee, self.changelogs)

    @property
    def is_rekeyed(self) -> bool:
        """True when the task reads a repartition topic of the application."""
        return self.stage.is_rekeyed

    @property
    def written_topics(self) -> set[str]:
        """All topics that it writes to."""
        changelogs = {place.topic for place in self.changelogs.values()}
        return {*self.stage.outputs, *changelogs, *(rekey.topic for rekey in self.rekeys.values())}

    @property
    def sources(self) -> tuple[TopicPartition, ...]:
        """Those of ``inputs`` that are source topics' partitions."""
        return tuple(source for source, port in zip(self.inputs, self.ports, strict=True) if port.is_source)

    def port_of(self, source: TopicPartition) -> int:
        """The number of the port that a partition is read at."""
        return self.inputs.index(source)


def is_transactional(guarantee: Guarantee, changelogs: Mapping[str, TopicPartition]) -> bool:
    """Whether a task has a transactional id: all have but those that keep nothing, at least once."""
    return guarantee == "exactly-once" or bool(changelogs)


def partitions_added(topics: str, partitions: int) -> PartitionsAdded:
    """The error for sources that have grown since the catalog was read, when they had ``partitions``."""
    return PartitionsAdded(
        f"{topics}: partitions were added to the {partitions} that there were at the start.",
        action="start it again: it then reads them too, unless state depends on how many there are.",
        topics=topics,
        partitions=partitions,
    )


def routing_of(catalog: Catalog) -> RoutingTable:
    """How running tasks find the partition of a key: the table of the active generation."""
    return RoutingTable.from_entry(catalog.active.routing)


class Wiring:
    """The tasks of an application in its active generation."""

    def __init__(self, topology: Topology, catalog: Catalog) -> None:
        self.topology = topology
        self.catalog = catalog
        self.generation = catalog.active.generation
        self.routing = routing_of(catalog)

    @property
    def written(self) -> Written:
        """What the stages of the code write."""
        stages = self.topology.stages
        return Written(
            {stage.name: frozenset(stage.rekeys) for stage in stages},
            {stage.name: frozenset(store.name for store in stage.stores) for stage in stages},
        )

    def primary_topic(self, stage: Stage) -> str:
        """The topic whose partitions are assigned to workers; the stage's task p follows its partition p."""
        return self.input_topics(stage)[0]

    def primary_topics(self) -> dict[str, Stage]:
        """Primary topic → stage, for every stage.

        Two stages never share one: a source that feeds several branches of the graph feeds one stage.
        """
        return {self.primary_topic(stage): stage for stage in self.topology.stages}

    def task(self, stage: Stage, partition: int) -> TaskWiring:
        """The wiring of one task. Raises ``PartitionsAdded`` for one that there was not when the catalog was read."""
        self.check(stage, partition)
        app, catalog = self.topology.app, self.catalog
        own_generation = catalog.changelog_generation(stage.name)
        topics = {store.name: changelog_topic(app, store.name, own_generation) for store in stage.stores}
        known_ids = catalog.active.topic_ids
        entries = {store.name: catalog.stores.get(store.name, store) for store in stage.stores}
        return TaskWiring(
            app=app,
            stage=stage,
            partition=partition,
            generation=self.generation,
            guarantee=catalog.app.guarantee,
            inputs=tuple(TopicPartition(topic, partition) for topic in self.input_topics(stage)),
            ports=tuple(self._port(port) for port in stage.inputs),
            changelogs={store: TopicPartition(topic, partition) for store, topic in topics.items()},
            topic_ids={topic: known_ids[topic] for topic in topics.values()},
            rekeys={
                name: Rekey(repartition_topic(app, name, self.generation), self.routing)
                for name in stage.rekeys
            },
            entries=entries,
            is_in_order=self._is_in_order(stage),
            stage_tasks=catalog.partitions(stage.name),
            indexes=tuple(index(entries[store]) for store, index in sorted(stage.indexes.items())),
            log_policy=ChangelogPolicy.of(catalog),
            outputs=frozenset(stage.outputs).union(catalog.stages[stage.name].outputs),
        )

    def reader(self, source: TopicPartition) -> TaskWiring | None:
        """The task that reads a partition; None where none does."""
        for stage in self.topology.stages:
            if source.topic in self.input_topics(stage):
                return self.task(stage, source.partition)
        return None

    def check(self, stage: Stage, partition: int) -> None:
        """Raise ``PartitionsAdded`` if the stage had no such partition when the catalog was read."""
        partitions = self.catalog.partitions(stage.name)
        if partition >= partitions:
            raise partitions_added(", ".join(self.input_topics(stage)), partitions)

    def check_stages(self, stages: Iterable[StageEntry]) -> None:
        """Raise ``PartitionsAdded`` if a stage of the catalog has sources that have grown since it was read."""
        for entry in stages:
            known = self.catalog.stages.get(entry.name)
            before = None if known is None else known.source_partitions
            if before is not None and (entry.source_partitions or 0) > before:
                raise partitions_added(", ".join(entry.sources), before)

    def check_counts(self, found: Mapping[str, int]) -> None:
        """Raise ``PartitionsAdded`` if a topic that a stage reads from outside has more partitions by now.

        ``found`` are the counts by topic; topics that are not among them pass.
        """
        for stage in self.topology.stages:
            before = self.catalog.partitions(stage.name)
            topics = [topic for topic in stage.sources if found.get(topic, before) > before]
            if topics:
                raise partitions_added(", ".join(topics), before)

    def tasks(self) -> list[TaskWiring]:
        """All tasks of all stages, upstream first."""
        return [
            self.task(stage, partition)
            for stage in self.topology.stages
            for partition in range(self.catalog.partitions(stage.name))
        ]

    @property
    def written_topics(self) -> set[str]:
        """All topics that its tasks write to."""
        return set().union(*(self.task(stage, 0).written_topics for stage in self.topology.stages))

    def input_topics(self, stage: Stage) -> tuple[str, ...]:
        """The topics that a stage reads, in the order of its inputs."""
        app, generation = self.topology.app, self.generation
        return tuple(
            port.name if port.is_source else repartition_topic(app, port.name, generation)
            for port in stage.inputs
        )

    def _port(self, port: Input) -> Port:
        upstreams = 1 if port.upstream is None else self.catalog.partitions(port.upstream)
        return Port(port.name, upstreams, port.is_source)

    def _is_in_order(self, stage: Stage) -> bool:
        if len(stage.inputs) > 1:
            return False
        (port,) = stage.inputs
        if port.upstream is None:
            return True
        before = self.topology.stage(port.upstream)
        return self._port(port).upstreams == 1 and not before.stores and self._is_in_order(before)
