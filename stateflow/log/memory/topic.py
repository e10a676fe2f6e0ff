"""Topics of the memory log, with the settings that a broker would answer for them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from stateflow.clock import Clock
from stateflow.errors import BrokerRefused, TopicMissing
from stateflow.log.base import TopicInfo, TopicSpec
from stateflow.log.memory.partition import PartitionLog, Payload

DEFAULT_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Kafka's topic settings and their defaults. Retention by time and size is not acted on here."""

_RECORD_OVERHEAD_BYTES = 70  # batch header (61) and the record's own length and delta fields, rounded up


class Topic:
    """One topic: its id, its settings and its partitions."""

    def __init__(self, spec: TopicSpec) -> None:
        check_config(spec.name, spec.config)
        self.name = spec.name
        self.topic_id = str(uuid.uuid4())
        self.replication = spec.replication
        self.overrides: dict[str, str] = {}
        self.configure(spec.config)
        self.partitions = [PartitionLog() for _ in range(spec.partitions)]

    @property
    def info(self) -> TopicInfo:
        """The topic as the cluster describes it."""
        return TopicInfo(self.name, self.topic_id, len(self.partitions), self.replication)

    @property
    def config(self) -> dict[str, str]:
        """Effective settings."""
        return {**DEFAULT_CONFIG, **self.overrides}

    def configure(self, changes: Mapping[str, str | None]) -> None:
        """Set checked settings; None removes an override. What each record is held against is worked out here, once."""
        for name, value in changes.items():
            if value is None:
                self.overrides.pop(name, None)
            else:
                self.overrides[name] = value
        self.policies = {policy.strip() for policy in self.setting("cleanup.policy").split(",")}
        """``compact``, ``delete`` or both."""
        self._message_bytes_max = int(self.setting("max.message.bytes"))
        self._stamps_at_append = self.setting("message.timestamp.type") == "LogAppendTime"

    def log(self, number: int) -> PartitionLog:
        """A partition that exists. Raises ``TopicMissing``."""
        if 0 <= number < len(self.partitions):
            return self.partitions[number]
        raise TopicMissing(
            f"Topic {self.name!r} has {len(self.partitions)} partitions, there is no {self.name}[{number}].",
            action="check how many partitions the topic was created with.",
            topic=self.name,
            partition=number,
        )

    def setting(self, name: str) -> str:
        """One effective setting."""
        return self.overrides.get(name) or DEFAULT_CONFIG[name]

    def payload(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes], ...],
        clock: Clock,
    ) -> Payload:
        """A record as this topic stores it. Raises ``BrokerRefused`` where a broker would."""
        if key is None and "compact" in self.policies:
            raise BrokerRefused(
                f"A record without a key was refused by the compacted topic {self.name!r}.",
                action="give every record of a compacted topic a key.",
                topic=self.name,
            )
        size_bytes = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            size_bytes += len(name) + len(content)
        if size_bytes > self._message_bytes_max:
            raise BrokerRefused(
                f"A record of {size_bytes} bytes is larger than topic {self.name!r} takes.",
                action="make the value smaller or raise the topic's max.message.bytes.",
                topic=self.name,
            )
        return Payload(key, value, clock.now_ms() if self._stamps_at_append else timestamp_ms, headers)


def check_config(topic: str, config: Mapping[str, str]) -> None:
    """Refuse what a broker would refuse: unknown names, and policies that do not exist."""
    unknown = sorted(set(config) - set(DEFAULT_CONFIG))
    if unknown:
        raise BrokerRefused(
            f"Unknown topic setting {', '.join(unknown)} for topic {topic!r}.",
            action="check the name in Kafka's list of topic settings.",
            topic=topic,
        )
    policies = {policy.strip() for policy in config.get("cleanup.policy", "delete").split(",")}
    if not policies <= {"compact", "delete"}:
        raise BrokerRefused(
            f"cleanup.policy={config['cleanup.policy']!r} of topic {topic!r} is not a policy.",
            action="use compact, delete, or compact,delete.",
            topic=topic,
        )
