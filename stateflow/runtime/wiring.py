"""Which topics, partitions and ids one task is bound to, worked out from topology and catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stateflow.catalog.model import Catalog, Guarantee, StoreEntry
from stateflow.catalog.names import changelog_topic, repartition_topic, task_id, transactional_id
from stateflow.checkpoint.terms import WHOLE_LOGS, LogTerms
from stateflow.operators.topology import Stage, Topology
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.state.index import StateIndex


@dataclass(frozen=True, slots=True)
class Rekey:
    """Where a stage's re-keyed records go: the topic of the active generation, and how keys find a partition."""

    topic: str
    routing: RoutingTable


@dataclass(frozen=True, slots=True)
class TaskWiring:
    """Everything fixed about a task for as long as its generation is active."""

    app: str
    stage: Stage
    partition: int
    generation: int
    guarantee: Guarantee
    inputs: tuple[TopicPartition, ...]
    """One partition of each input topic, the lead topic first."""
    upstreams: int
    """How many inputs announce event time: tasks of the stage before, or source topics."""
    changelogs: Mapping[str, TopicPartition]
    """Store name → its changelog partition."""
    topic_ids: Mapping[str, str]
    """Changelog topic → the topic id that the generation was built with."""
    rekeys: Mapping[str, Rekey]
    entries: Mapping[str, StoreEntry]
    """Store name → the store as the catalog has it, with every schema of which it holds values."""
    terms: LogTerms = WHOLE_LOGS
    """What the catalog says about the changelogs."""
    is_in_order: bool = False
    """True where the input is the records of one source partition as they come: with each, event time has come so far.

    Behind several tasks a record does not say from which it is. Behind a task with state, what time makes it send
    comes between the records.
    """
    indexes: tuple[StateIndex, ...] = ()
    """Indexes of the stores: derived, and in no changelog."""

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
    def is_rekeyed(self) -> bool:
        """True when the task reads a repartition topic of the application."""
        return self.stage.repartition is not None


class Wiring:
    """The tasks of an application in its active generation."""

    def __init__(self, topology: Topology, catalog: Catalog) -> None:
        self.topology = topology
        self.catalog = catalog
        self.generation = catalog.active.generation
        self.routing = RoutingTable.from_entry(catalog.active.routing)

    def lead_topic(self, stage: Stage) -> str:
        """The topic whose partitions are dealt out to workers; the stage's task p follows its partition p."""
        if stage.repartition is not None:
            return repartition_topic(self.topology.app, stage.repartition, self.generation)
        return stage.sources[0]

    def lead_topics(self) -> dict[str, Stage]:
        """Lead topic → stage, for every stage.

        Two stages never share one: a source that feeds several branches of the graph feeds one stage.
        """
        return {self.lead_topic(stage): stage for stage in self.topology.stages}

    def task(self, stage: Stage, partition: int) -> TaskWiring:
        """The wiring of one task."""
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
            upstreams=self._upstreams(stage),
            changelogs={store: TopicPartition(topic, partition) for store, topic in topics.items()},
            topic_ids={topic: known_ids[topic] for topic in topics.values()},
            rekeys={
                name: Rekey(repartition_topic(app, name, self.generation), self.routing)
                for name in stage.rekeys
            },
            entries=entries,
            is_in_order=self._is_in_order(stage),
            indexes=tuple(index(entries[store]) for store, index in sorted(stage.indexes.items())),
            terms=LogTerms.of(catalog),
        )

    def tasks(self) -> list[TaskWiring]:
        """All tasks of all stages, upstream first."""
        return [
            self.task(stage, partition)
            for stage in self.topology.stages
            for partition in range(self.catalog.partitions(stage.name))
        ]

    def input_topics(self, stage: Stage) -> tuple[str, ...]:
        """Topics the stage reads, the lead topic first."""
        return stage.sources if stage.repartition is None else (self.lead_topic(stage),)

    def _is_in_order(self, stage: Stage) -> bool:
        if stage.upstream is None:
            return len(stage.sources) == 1
        before = self.topology.stage(stage.upstream)
        return self._upstreams(stage) == 1 and not before.stores and self._is_in_order(before)

    def _upstreams(self, stage: Stage) -> int:
        if stage.upstream is None:
            return len(stage.sources)
        return self.catalog.partitions(stage.upstream)
