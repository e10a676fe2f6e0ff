"""The changelog and repartition topics that an application has, and their settings."""

from __future__ import annotations

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.log.base import TopicSpec
from stateflow.runtime.snapshots.trim_policy import TRIMMED_CONFIG

CHANGELOG_CONFIG = {
    "cleanup.policy": "compact",
    # Segments roll by record time: wall-clock times keep rolling steady whatever event time does.
    "message.timestamp.type": "LogAppendTime",
}
REPARTITION_CONFIG = {
    "cleanup.policy": "delete",
    # Records carry event time, which may be years ago: only DeleteRecords behind the committed offset removes them.
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    # A segment per jump of event time would be a segment per record: roll by size alone.
    "segment.ms": str(10 * 365 * 24 * 3600 * 1000),
    "segment.bytes": str(64 << 20),
}


def own_topics(catalog: Catalog, replication: int) -> list[TopicSpec]:
    """The changelog and repartition topics of the active generation."""
    app, generation = catalog.app.app, catalog.active.generation
    changelog_config = (
        CHANGELOG_CONFIG if catalog.app.trim is None else {**CHANGELOG_CONFIG, **TRIMMED_CONFIG}
    )
    specs = []
    for stage in catalog.stages.values():
        own_generation = catalog.changelog_generation(stage.name)
        partitions = catalog.partitions(stage.name)
        for store in (store for store in catalog.stores.values() if store.stage == stage.name):
            topic = changelog_topic(app, store.name, own_generation)
            specs.append(TopicSpec(topic, partitions, replication, changelog_config))
        for step in stage.rekeys:
            topic = repartition_topic(app, step.name, generation)
            specs.append(TopicSpec(topic, partitions, replication, REPARTITION_CONFIG))
    return specs
