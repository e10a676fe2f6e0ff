"""The other compacted topics of a cluster: they share the cleaner threads, and the dedupe buffer, of its brokers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.settings.cleanup import Cleanup


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What else the cleaners of the same brokers work on."""

    topics: int
    size_bytes: int
    """Of all replicas on those brokers."""


def neighbours_of(admin: ClusterAdmin, topics: Collection[str]) -> Neighbours:
    """Compacted topics beside these, counted where they have a replica on one of the same brokers.

    Raises ``BrokerRefused`` when settings or sizes may not be read.
    """
    others = [name for name in admin.all_partition_counts() if name not in topics]
    compacted = {
        name for name, config in admin.topic_configs(others).items() if Cleanup.from_config(config).compacts
    }
    replicas = admin.replica_sizes(topics, beside=compacted)  # some may have been deleted meanwhile
    brokers = {one.broker_id for one in replicas if one.partition.topic in topics}
    beside = [one for one in replicas if one.partition.topic in compacted and one.broker_id in brokers]
    return Neighbours(len({one.partition.topic for one in beside}), sum(one.size_bytes for one in beside))
