"""The input group of a task that no group member runs."""

from __future__ import annotations

from collections.abc import Mapping

from stateflow.log.base import Cluster, Committed, GroupMetadata
from stateflow.record import TopicPartition


class StandaloneGroup:
    """Commits input offsets for a consumer group whose partitions somebody else assigns: Spark, or a command."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    def metadata(self) -> GroupMetadata | None:
        """None: the transactional id alone fences."""
        return None

    def renewed(self, proof: GroupMetadata) -> GroupMetadata:
        """There is nothing to renew."""
        return proof

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit outside a transaction (at-least-once)."""
        self._cluster.commit(self._group, offsets)
