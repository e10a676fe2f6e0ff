"""Topics of a Kafka cluster: describing, creating, deleting, settings."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.base import TopicInfo, TopicSpec
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.failures import error_of, is_missing
from stateflow.log.kafka.in_force import TOPIC_SOURCE, are_in_force

_JUST_NOW_SECONDS = 5.0
"""A topic that was deleted since, by others, is found out a little later: the client gives up what it cannot send."""

_FITTING = 0.9
"""A batch that cannot be compressed is a little larger when it was tried."""
_LOG = logging.getLogger(__name__)


class Topics:
    """The topic half of :class:`stateflow.log.kafka.KafkaCluster`."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._counted: dict[str, tuple[int, float]] = {}
        """Topic → how many partitions it had, and when that was asked."""
        self._unreplicated: set[str] = set()
        self._fitted: set[str] = set()
        """Topics that the size of batches has been held against."""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics that exist, of those asked for."""
        return {name: _info(found) for name, found in self._describe(topics).items()}

    def partitions(self, topic: str, partition: int) -> int:
        """How many partitions a topic has, 0 if there is none; asked for again unless ``partition`` was there just now.

        As many writers as there are tasks begin at the same time, and each wants to know it of the same topics.
        """
        now_seconds = self._admin.clock.monotonic_seconds()
        count, asked_seconds = self._counted.get(topic, (0, now_seconds))
        if count and partition < count and now_seconds - asked_seconds < _JUST_NOW_SECONDS:
            return count
        found = self.describe([topic])
        count = found[topic].partitions if topic in found else 0
        if topic in found and found[topic].replication == 1:
            self._unreplicated.add(topic)
        self._counted[topic] = (count, now_seconds)
        return count

    def are_replicated(self, topics: Iterable[str]) -> bool:
        """Whether each of these has another replica, of those whose partitions somebody has asked for."""
        return self._unreplicated.isdisjoint(topics)

    def have_one_replica(self, topics: Iterable[str]) -> bool:
        """Whether none of these has another replica; False as well for those that nobody has asked for."""
        return self._unreplicated.issuperset(topics)

    def list_names(self) -> list[str]:
        """All topics but internal ones, sorted."""
        found = self._admin.call("listing topics", lambda left: self._admin.client.list_topics(timeout=left))
        return sorted(name for name in found.topics if not name.startswith("__"))

    def create(self, topics: Iterable[TopicSpec]) -> dict[str, TopicInfo]:
        """Create what does not exist, and wait until every partition has a leader."""
        specs = list({spec.name: spec for spec in topics}.values())
        names = [spec.name for spec in specs]
        if specs:
            self._admin.call(f"creating {', '.join(names)}", functools.partial(self._create, specs))
        seen: dict[str, TopicInfo] = {}  # not asked for again: the next broker may not have heard of them yet

        def is_usable() -> bool:
            found = self._describe(names)
            seen.update({name: _info(topic) for name, topic in found.items()})
            return _are_usable(found, names)

        self._admin.wait_until(f"creating {', '.join(names)}", is_usable)
        return seen

    def check_create(self, topics: Iterable[TopicSpec]) -> None:
        """Ask the brokers whether they would create them; raises what ``create`` raises."""
        specs = list(topics)
        if specs:
            what = f"creating {', '.join(spec.name for spec in specs)}"
            self._admin.call(what, functools.partial(self._create, specs, validate_only=True))

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics and wait until they are gone."""
        names = list(topics)
        for name in names:
            self._counted.pop(name, None)
            self._admin.call(f"deleting topic {name!r}", functools.partial(self._delete, name))
        self._admin.wait_until(f"deleting {', '.join(names)}", lambda: not self._describe(names))

    def config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        entries = self._config_entries(topic)
        return {name: entry.value for name, entry in sorted(entries.items()) if entry.value is not None}

    def record_bytes_max(self, topic: str) -> int:
        """The largest batch of records that a topic takes; a record is in a batch of one at least."""
        return int(self._config_entries(topic)["max.message.bytes"].value)

    def fitting_batch_bytes(self, batch_bytes: int, topics: Iterable[str]) -> int:
        """A size of batches, made smaller where one of these topics takes less; each is asked for once."""
        for topic in sorted(set(topics) - self._fitted):
            try:
                bytes_max = self.record_bytes_max(topic)
            except StateflowError as error:
                _LOG.warning("How large a batch %r takes is not known: %s", topic, error)
                if isinstance(error, BrokerUnreachable):
                    break  # the others would be waited for as long
                continue
            self._fitted.add(topic)
            if bytes_max < batch_bytes:
                batch_bytes = max(1, int(bytes_max * _FITTING))
                _LOG.info(
                    "Batches have up to %d bytes: the topic %r takes %d.", batch_bytes, topic, bytes_max
                )
        return batch_bytes

    def _config_entries(self, topic: str) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, topic)

        def request(left_seconds: float) -> dict[str, Any]:
            (future,) = self._admin.client.describe_configs([resource], request_timeout=left_seconds).values()
            return dict(future.result())

        return self._admin.ask(f"reading the settings of topic {topic!r}", request)

    def alter_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set or remove overrides, leaving the others as they are, and wait until they are in force."""
        entries = [
            ConfigEntry(
                name,
                value or "",
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)

        def request(left_seconds: float) -> None:
            (future,) = self._admin.client.incremental_alter_configs(
                [resource], request_timeout=left_seconds
            ).values()
            future.result()

        if changes:
            self._admin.call(f"changing the settings of topic {topic!r}", request)
            self._admin.wait_until(
                f"changing the settings of topic {topic!r}",
                lambda: are_in_force(self._config_entries(topic), changes, TOPIC_SOURCE),
            )

    def _describe(self, topics: Iterable[str]) -> dict[str, Any]:
        names = sorted(set(topics))
        if not names:
            return {}
        return self._admin.ask(
            f"describing {', '.join(names)}", lambda left: topics_found(self._admin.client, names, left)
        )

    def _create(
        self, specs: Sequence[TopicSpec], left_seconds: float, *, validate_only: bool = False
    ) -> None:
        new = [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication,
                config=dict(spec.config),
            )
            for spec in specs
        ]
        asked = self._admin.client.create_topics(
            new, request_timeout=left_seconds, validate_only=validate_only
        )
        for future in asked.values():
            try:
                future.result()
            except KafkaException as raised:
                if error_of(raised).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _delete(self, name: str, left_seconds: float) -> None:
        (future,) = self._admin.client.delete_topics([name], request_timeout=left_seconds).values()
        try:
            future.result()
        except KafkaException as raised:
            if not is_missing(error_of(raised)):
                raise


def topics_found(client: AdminClient, names: Iterable[str], timeout_seconds: float) -> dict[str, Any]:
    """The client library's descriptions of the topics that exist, of those named. Raises ``KafkaException``."""
    found: dict[str, Any] = {}
    asked = client.describe_topics(TopicCollection(sorted(names)), request_timeout=timeout_seconds)
    for name, answer in asked.items():
        try:
            found[name] = answer.result()
        except KafkaException as raised:
            if not is_missing(error_of(raised)):
                raise
    return found


def is_led(partition: Any) -> bool:
    """Whether a partition, of such a description, has a leader."""
    return partition.leader is not None and partition.leader.id >= 0


def _are_usable(found: Mapping[str, Any], names: Iterable[str]) -> bool:
    """True when all of them are there, and each partition has a leader."""
    return found.keys() >= set(names) and all(
        is_led(partition) for topic in found.values() for partition in topic.partitions
    )


def _info(found: Any) -> TopicInfo:
    return TopicInfo(
        name=found.name,
        topic_id=str(found.topic_id),
        partitions=len(found.partitions),
        replication=len(found.partitions[0].replicas),
    )
