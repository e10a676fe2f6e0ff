"""The topics of a generation that is prepared: whether they can be created, and their settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from stateflow.catalog.model import Catalog, GenerationEntry
from stateflow.errors import PartitionCountChanged, TopicForeign
from stateflow.log.base import Cluster, TopicInfo, TopicSpec
from stateflow.runtime.worker.topic_ownership import written_topics
from stateflow.scale.scope import moved_topics

_LANES = 8


def create_topics(cluster: Cluster, catalog: Catalog, entry: GenerationEntry) -> dict[str, str]:
    """Topics with the settings that the active generation's have right now, tuned ones included."""
    specs = topic_specs(cluster, catalog, entry)
    refuse_other_counts(specs, cluster.describe(spec.name for spec in specs))
    left = written_topics(cluster, {spec.name for spec in specs} - entry.topic_ids.keys())
    if left:  # what an attempt before this one created is empty until it is recorded
        raise TopicForeign(
            f"{', '.join(left)} are there already and hold records, and the catalog of {catalog.app.app!r} does not"
            " know them.",
            action="delete them if nobody needs them, and start again; or undo the change with `stateflow scale"
            " abort`.",
            topics=left,
        )
    created = cluster.create(specs)
    refuse_other_counts(specs, created)  # again: somebody may have been quicker
    moved = moved_topics(catalog)
    pairs = [(topic.topic(catalog.active.generation), topic.topic(entry.generation)) for topic in moved]
    copy_all_settings(cluster, pairs)
    return {name: info.topic_id for name, info in created.items()}


def topic_specs(cluster: Cluster, catalog: Catalog, entry: GenerationEntry) -> list[TopicSpec]:
    """The topics of a generation, each replicated as that of the active one is."""
    moved = moved_topics(catalog)
    old = cluster.describe(topic.topic(catalog.active.generation) for topic in moved)
    return [
        TopicSpec(
            topic.topic(entry.generation),
            entry.partitions,
            old[topic.topic(catalog.active.generation)].replication,
        )
        for topic in moved
    ]


def check_topics(cluster: Cluster, specs: Sequence[TopicSpec]) -> None:
    """Whether these topics are there or could be created: asked before a generation is published.

    Raises ``PartitionCountChanged`` and what creating topics raises, ``BrokerRefused`` above all.
    """
    found = cluster.describe(spec.name for spec in specs)
    refuse_other_counts(specs, found)
    cluster.check_create(spec for spec in specs if spec.name not in found)


def refuse_other_counts(specs: Iterable[TopicSpec], found: Mapping[str, TopicInfo]) -> None:
    """Raise ``PartitionCountChanged`` for a topic that is there with another partition count than it is to have."""
    for spec in specs:
        info = found.get(spec.name)
        if info is not None and info.partitions != spec.partitions:
            raise PartitionCountChanged(
                f"{spec.name} has {info.partitions} partitions, the generation that is prepared needs"
                f" {spec.partitions}.",
                action="delete the topic if nobody needs it, and start again.",
                topic=spec.name,
                partitions=info.partitions,
            )


def copy_all_settings(cluster: Cluster, pairs: Iterable[tuple[str, str]]) -> None:
    """``copy_settings`` of several topics, each from another: some at a time, as it is mostly waiting."""
    with ThreadPoolExecutor(_LANES, thread_name_prefix="settings") as pool:
        for _ in pool.map(lambda pair: copy_settings(cluster, *pair), pairs):
            pass


def copy_settings(cluster: Cluster, source: str, target: str) -> None:
    """Set what differs, and only that: what the source takes from the broker's defaults, the target takes
    too.
    """
    wanted, present = cluster.topic_config(source), cluster.topic_config(target)
    changes = {name: value for name, value in wanted.items() if present.get(name) != value}
    if changes:
        cluster.alter_topic_config(target, changes)
