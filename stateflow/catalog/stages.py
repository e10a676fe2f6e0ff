"""What the stages of an application read and write: their topics and partitions, as the catalog has them."""

from __future__ import annotations

from stateflow.catalog.model import Catalog, InputEntry
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.record import TopicPartition


def stage_inputs(catalog: Catalog, stage: str) -> list[TopicPartition]:
    """Every partition of every topic that a stage reads in the active generation."""
    topics = [input_topic(catalog, port) for port in catalog.stages[stage].inputs]
    return [TopicPartition(topic, p) for topic in topics for p in range(catalog.partitions(stage))]


def source_stage_inputs(catalog: Catalog) -> list[TopicPartition]:
    """Every partition that stages read which read sources."""
    return [
        at for name, stage in catalog.stages.items() if stage.sources for at in stage_inputs(catalog, name)
    ]


def stage_changelogs(
    catalog: Catalog, stage: str, partition: int, generation: int
) -> dict[str, TopicPartition]:
    """Store name → the changelog partition of one task of a stage, in that generation of its changelogs."""
    return {
        store.name: TopicPartition(changelog_topic(catalog.app.app, store.name, generation), partition)
        for store in catalog.stores.values()
        if store.stage == stage
    }


def input_topic(catalog: Catalog, port: InputEntry) -> str:
    """The topic of a stage's input in the active generation."""
    if port.upstream is None:
        return port.name
    return repartition_topic(catalog.app.app, port.name, catalog.active.generation)


def upstream_first(catalog: Catalog) -> list[str]:
    """Stage names so that each comes after the one it reads from."""
    ordered: list[str] = []
    waiting = dict(catalog.stages)
    while waiting:
        ready = [
            name
            for name, stage in waiting.items()
            if all(port.upstream is None or port.upstream in ordered for port in stage.inputs)
        ]
        assert ready, "the graph of stages has no cycles"
        ordered += ready
        for name in ready:
            del waiting[name]
    return ordered
