"""What measuring and changing one topic needs of an administrative connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from stateflow.compaction.cluster.logdirs import ReplicaSize


class TopicAdmin(Protocol):
    """The part of :class:`stateflow.compaction.cluster.admin.ClusterAdmin` that the closed loop lives on."""

    def replica_sizes(self, topics: Iterable[str]) -> list[ReplicaSize]:
        """Bytes of every replica of these topics, right now."""
        ...

    def topic_config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        ...

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """The settings made for this topic itself."""
        ...

    def alter_topic(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set topic settings all together; None removes an override. Raises ``BrokerRefused``."""
        ...
