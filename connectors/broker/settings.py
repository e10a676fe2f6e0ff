"""The configuration of an embedded broker: small, quick to rebalance, strict about topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True)
class NodePorts:
    """Where one node listens: for clients and brokers, and for the metadata quorum."""

    client: int
    controller: int


def node_settings(
    node_id: int, ports: Sequence[NodePorts], log_dir: Path, overrides: Mapping[str, object]
) -> dict[str, str]:
    """Broker properties of node `node_id` (from 1) among `ports`; `overrides` win over everything."""
    own = ports[node_id - 1]
    voters = ",".join(f"{number}@{HOST}:{port.controller}" for number, port in enumerate(ports, 1))
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{own.client},CONTROLLER://{HOST}:{own.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{own.client}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": log_dir,
        **_replication(len(ports)),
        **_SMALL_AND_QUICK,
        **overrides,
    }
    return {name: str(value) for name, value in settings.items()}


def _replication(brokers: int) -> dict[str, object]:
    factor, in_sync_min = (3, 2) if brokers >= 3 else (1, 1)
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": in_sync_min,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync_min,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync_min,
    }


_SMALL_AND_QUICK: dict[str, object] = {
    "auto.create.topics.enable": "false",  # a misspelled topic is an error, not a new topic
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "num.network.threads": 2,
    "num.io.threads": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "broker.session.timeout.ms": 3000,  # a killed broker is noticed after 3 s instead of 9
    "broker.heartbeat.interval.ms": 500,
    # Zero-filled on every pass. 16 MiB index 629,000 keys; a segment with more would never be cleaned.
    "log.cleaner.dedupe.buffer.size": 16 << 20,
    # At the default of 15 s the cleaner's pause, and not a topic's policy, would decide a log's size.
    "log.cleaner.backoff.ms": 1000,
    "log.initial.task.delay.ms": 1000,
}


def properties_text(settings: Mapping[str, str]) -> str:
    """A Java properties file; backslashes and line ends in values are escaped."""
    rows = []
    for name, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        rows.append(f"{name}={escaped}\n")
    return "".join(rows)
