"""How a Spark task reaches Kafka: settings that travel to executors, where they become a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stateflow.log.base import Cluster

if TYPE_CHECKING:
    from stateflow.log.kafka import KafkaOptions


@dataclass(frozen=True, slots=True)
class Connection:
    """Bootstrap servers and client settings. ``repr`` leaves the settings out: they may hold secrets."""

    brokers: str
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def open(self, clients: KafkaOptions | None = None) -> Cluster:
        """A new connection; the caller closes it. Raises ``BrokerUnreachable``."""
        from stateflow.log.kafka import connect

        return connect(self.brokers, self.client, clients)
