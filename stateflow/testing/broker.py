"""The Kafka broker that tests run against: an embedded one, one in Docker, or one that already runs."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.features import finalized_features
from stateflow.errors import BrokerUnreachable, ConfigError, SetupError, install_command

VARIABLE = "STATEFLOW_TEST_BROKER"
DOCKER_IMAGE = "apache/kafka:4.3.1"
DOCKER_START_SECONDS = 90.0
ANSWER_SECONDS = 1.0  # for a port where nothing listens; one that listens has 5 s to answer
_CONTAINER_PORT = 9092
# Tests write records of 1970, which a broker would delete by their age: it looks every five minutes.
_RETENTION_MS = -1


@dataclass(frozen=True)
class TestBroker:
    """A broker for tests: its `bootstrap` address, and the embedded cluster behind it if it is one."""

    __test__ = False  # pytest: not a test class

    bootstrap: str
    embedded: EmbeddedKafka | None = None


@contextmanager
def open_test_broker(choice: str | None = None) -> Iterator[TestBroker]:
    """A broker for the time of the block.

    `choice` is `embedded`, `docker` or `host:port[,…]`; None takes STATEFLOW_TEST_BROKER, and `embedded`
    without it. Raises ConfigError for anything else, SetupError or BrokerUnreachable when the chosen broker
    cannot be had.
    """
    choice = choice or os.environ.get(VARIABLE) or "embedded"
    if choice == "embedded":
        with EmbeddedKafka(overrides={"log.retention.ms": _RETENTION_MS}) as cluster:
            yield TestBroker(cluster.bootstrap, cluster)
    elif choice == "docker":
        with _docker_broker() as bootstrap:
            yield TestBroker(bootstrap)
    else:
        host, port = _address(choice)
        _require_answer(host, port, time.monotonic() + ANSWER_SECONDS)
        yield TestBroker(choice)


def _address(choice: str) -> tuple[str, int]:
    """Host and port of the first server of a bootstrap list."""
    host, colon, port = choice.split(",")[0].rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ConfigError(
            f"{VARIABLE} is {choice!r}.",
            action="Set it to `embedded`, `docker` or an address like `localhost:9092`.",
        )
    return host, int(port)


@contextmanager
def _docker_broker() -> Iterator[str]:
    try:
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise SetupError(
            "A broker in Docker needs testcontainers.", action=f"Run `{install_command('docker')}`."
        ) from error
    port = _free_port()
    try:
        container = DockerContainer(DOCKER_IMAGE).with_bind_ports(_CONTAINER_PORT, port)
        container.with_envs(**_docker_environment(port)).start()
    except Exception as error:
        raise SetupError(
            f"Docker could not run {DOCKER_IMAGE}: {error}.",
            action=f"Start Docker, or unset {VARIABLE} to use the embedded broker.",
        ) from error
    try:
        _require_answer("127.0.0.1", port, time.monotonic() + DOCKER_START_SECONDS)
        yield f"127.0.0.1:{port}"
    finally:
        container.stop()


def _docker_environment(port: int) -> dict[str, str]:
    """Settings of the official image for one node that tells its clients the host's port."""
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{_CONTAINER_PORT},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "500",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_LOG_CLEANER_BACKOFF_MS": "1000",
        "KAFKA_LOG_RETENTION_MS": str(_RETENTION_MS),
    }


def _require_answer(host: str, port: int, deadline: float) -> None:
    """Wait until a broker answers there. Raises BrokerUnreachable at the deadline (monotonic seconds)."""
    while True:
        try:
            finalized_features(host, port)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise BrokerUnreachable(
                    f"No Kafka broker answers at {host}:{port} ({error}).",
                    action=f"Start it, or unset {VARIABLE} to use the embedded broker.",
                ) from error
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])
