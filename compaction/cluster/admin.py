"""What the tuner asks of a cluster beyond the log protocol: broker settings, sizes on disk, validated changes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from stateflow.clock import SystemClock
from stateflow.compaction.cluster.logdirs import ReplicaSize, broker_version, describe_log_dirs
from stateflow.compaction.settings.topic_settings import CleanerSettings
from stateflow.errors import BrokerRefused, BrokerUnreachable, TopicMissing
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.failures import error_of
from stateflow.log.kafka.in_force import BROKER_SOURCE, TOPIC_SOURCE, are_in_force
from stateflow.log.kafka.settings import admin_settings
from stateflow.log.kafka.wire import WireConnection

TIMEOUT_SECONDS = 20.0
_LOOK_SECONDS = 0.01
_CONFIGS_AT_ONCE = 500


class ClusterAdmin:
    """The administrative side of one cluster. ``settings`` are librdkafka's, security included.

    Every method raises ``BrokerUnreachable`` when nobody answers, with the reason, ``TopicMissing`` for a topic that is
    not there, and ``BrokerRefused`` when the broker says no. Not thread-safe. Close it after use.
    """

    def __init__(
        self,
        brokers: str,
        settings: Mapping[str, object] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._settings: dict[str, Any] = dict(settings or {})
        self._timeout_seconds = timeout_seconds
        self._admin = Admin(brokers, admin_settings(brokers, self._settings), SystemClock(), timeout_seconds)
        self._brokers = brokers
        self._connections: dict[int, WireConnection] = {}

    def broker_addresses(self) -> dict[int, tuple[str, int]]:
        """Broker id → (host, port) as the cluster advertises them to this listener."""
        metadata = self._list_topics()
        return {broker.id: (broker.host, broker.port) for broker in metadata.brokers.values()}

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Topic → number of partitions. Raises ``TopicMissing``."""
        known = self._list_topics().topics
        counts = {}
        for topic in topics:
            if topic not in known:
                raise TopicMissing(
                    f"There is no topic {topic!r} on {self._brokers}, or you may not see it.",
                    action="Check the name, or start the application that writes it; on a guarded cluster ask for "
                    "DESCRIBE and READ on the topic.",
                    topic=topic,
                )
            counts[topic] = len(known[topic].partitions)
        return counts

    def all_partition_counts(self) -> dict[str, int]:
        """Every topic of the cluster, internal ones too → number of partitions."""
        return {name: len(found.partitions) for name, found in self._list_topics().topics.items()}

    def leaders(self, topic: str) -> dict[int, int]:
        """Partition → id of the broker that leads it."""
        self.partition_counts([topic])
        return {number: part.leader for number, part in self._list_topics().topics[topic].partitions.items()}

    def replica_sizes(self, topics: Iterable[str], beside: Iterable[str] = ()) -> list[ReplicaSize]:
        """Bytes of every replica of these topics on every broker, right now; ``beside`` them of those that exist."""
        counts = self.partition_counts(topics)
        if others := set(beside):
            counts |= {name: count for name, count in self.all_partition_counts().items() if name in others}
        sizes: list[ReplicaSize] = []
        for broker_id, connection in self._wire().items():
            try:
                sizes += describe_log_dirs(connection, broker_id, counts)
            except BrokerUnreachable:
                self._connections.pop(broker_id).close()  # opened anew by the next call
                raise
        return sizes

    def version(self) -> tuple[tuple[int, int], bool]:
        """The lowest release among the brokers, and whether one is newer than the knob table knows."""
        versions = [broker_version(connection) for connection in self._wire().values()]
        return min(release for release, _ in versions), any(newer for _, newer in versions)

    def cleaner_settings(self, broker_id: int) -> CleanerSettings:
        """The log cleaner's settings of one broker, read back from it."""
        return CleanerSettings.from_config(self._values(ResourceType.BROKER, str(broker_id)))

    def topic_config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        return self._values(ResourceType.TOPIC, topic)

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Effective settings of many topics, asked for all together; those deleted meanwhile are left out."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, dict[str, str]] = {}
        for at in range(0, len(resources), _CONFIGS_AT_ONCE):
            found |= self._topic_configs(resources[at : at + _CONFIGS_AT_ONCE])
        return found

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """The settings made for this topic itself; the others follow the broker."""
        entries = self._entries(ResourceType.TOPIC, topic)
        return {name: entry.value for name, entry in entries.items() if entry.source == TOPIC_SOURCE}

    def broker_overrides(self, broker_id: int) -> dict[str, str]:
        """The dynamic settings made for this broker itself; the others are static or the cluster's."""
        entries = self._entries(ResourceType.BROKER, str(broker_id))
        return {name: entry.value for name, entry in entries.items() if entry.source == BROKER_SOURCE}

    def alter_topic(
        self, topic: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set topic settings all together; None removes an override. ``validate_only`` asks without changing.

        Returns when they are in force.
        """
        self._alter(ResourceType.TOPIC, topic, changes, validate_only)

    def alter_broker(
        self, broker_id: int, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set dynamic settings of one broker and wait for them; cleaner settings restart all its cleaner threads."""
        self._alter(ResourceType.BROKER, str(broker_id), changes, validate_only)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- inside -------------------------------------------------------------------------------------

    def _wire(self) -> dict[int, WireConnection]:
        for broker_id, (host, port) in self.broker_addresses().items():
            if broker_id not in self._connections:
                self._connections[broker_id] = WireConnection(host, port, self._settings)
        return self._connections

    def _list_topics(self) -> Any:
        return self._admin.call(
            "asking for the cluster's topics", lambda left: self._admin.client.list_topics(timeout=left)
        )

    def _entries(self, kind: ResourceType, name: str) -> dict[str, Any]:
        resource = ConfigResource(kind, name)

        def ask(left_seconds: float) -> dict[str, Any]:
            entries: dict[str, Any] = self._described([resource], left_seconds)[resource].result()
            return entries

        return self._admin.ask(f"reading the settings of {_shown(kind, name)}", ask)

    def _topic_configs(self, resources: list[ConfigResource]) -> dict[str, dict[str, str]]:
        def ask(left_seconds: float) -> dict[str, dict[str, str]]:
            found: dict[str, dict[str, str]] = {}
            for resource, answer in self._described(resources, left_seconds).items():
                try:
                    found[resource.name] = _texts(answer.result())
                except KafkaException as error:
                    if error_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
            return found

        return self._admin.ask("reading the settings of topics", ask)

    def _described(self, resources: list[ConfigResource], left_seconds: float) -> Any:
        return self._admin.client.describe_configs(resources, request_timeout=left_seconds)

    def _values(self, kind: ResourceType, name: str) -> dict[str, str]:
        return _texts(self._entries(kind, name))

    def _alter(
        self, kind: ResourceType, name: str, changes: Mapping[str, str | None], validate_only: bool
    ) -> None:
        resource = ConfigResource(kind, name, incremental_configs=[_entry(*item) for item in changes.items()])

        def alter(left_seconds: float) -> None:
            answers = self._admin.client.incremental_alter_configs(
                [resource], validate_only=validate_only, request_timeout=left_seconds
            )
            answers[resource].result()

        self._admin.call(f"changing the settings of {_shown(kind, name)}", alter)
        if not validate_only:
            self._await_in_force(kind, name, changes)

    def _await_in_force(self, kind: ResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        source = TOPIC_SOURCE if kind is ResourceType.TOPIC else BROKER_SOURCE
        deadline = time.monotonic() + self._timeout_seconds
        while not are_in_force(self._entries(kind, name), changes, source):
            if time.monotonic() >= deadline:
                raise BrokerRefused(
                    f"The broker took a change of {name} {self._timeout_seconds:g} s ago, and does not show it.",
                    action="Look at the broker's log and read the settings again; the change may still arrive.",
                )
            time.sleep(_LOOK_SECONDS)


def _texts(entries: Mapping[str, Any]) -> dict[str, str]:
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def _entry(name: str, value: str | None) -> ConfigEntry:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    return ConfigEntry(name, value, incremental_operation=operation)


def _shown(kind: ResourceType, name: str) -> str:
    return f"broker {name}" if kind is ResourceType.BROKER else f"topic {name!r}"
