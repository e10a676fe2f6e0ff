"""What `stateflow compaction` says on brokers where it can do nothing, or may not see everything."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from stateflow.compaction import ClusterAdmin, MeasureOptions, RestoreRate, measure
from stateflow.compaction.sensing.effect import cautions
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import ConfigError, TopicMissing
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import connect
from stateflow.testing.broker import TestBroker
from tests.compaction_command import invoke

pytestmark = pytest.mark.broker
LOOK = ["--seconds", "200ms", "--restore-rate", "100000"]
RATE = ["--rate", "100"]
GOAL = ["--restore-within", "500ms"]


def fill(bootstrap: str, topic: str, config: dict[str, str]) -> None:
    with closing(connect(bootstrap)) as cluster:
        cluster.create([TopicSpec(topic, 1, 1, config)])
        with closing(cluster.writer()) as writer:
            for number in range(2000):
                writer.send(topic, b"k%d" % (number % 50), b"v" * 200, partition=0)
            writer.commit()


@pytest.fixture
def topic(broker: TestBroker) -> Iterator[str]:
    name = f"truth-{uuid.uuid4().hex[:6]}"
    yield name
    with closing(connect(broker.bootstrap)) as cluster:
        cluster.delete([name])


def test_a_topic_that_is_only_deleted_from_is_measured_and_refused(
    broker: TestBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(broker.bootstrap, topic, {"cleanup.policy": "delete"})
    where = ["--brokers", broker.bootstrap, "--topic", topic]
    code, _, text = invoke(capsys, "measure", *where, *LOOK)
    assert code == 0
    assert "warning: " in text
    for command in ("apply", "watch"):
        code, _, _ = invoke(capsys, command, *where, *LOOK, *GOAL)
        assert code == ConfigError.exit_code, command
    code, told, _ = invoke(capsys, "recommend", *where, *LOOK, *GOAL, "--json")
    assert "cleanup.policy=delete" in told[0]["message"]


def test_retention_and_silence_are_told_with_every_recommendation(
    broker: TestBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(broker.bootstrap, topic, {"cleanup.policy": "compact,delete", "retention.ms": "86400000"})
    where = ["--brokers", broker.bootstrap, "--topic", topic]
    for command in (["recommend"], ["apply", "--dry-run"]):
        code, _, text = invoke(capsys, *command, *where, *LOOK, *RATE, *GOAL)
        assert code == 0
        assert "settings cannot act on an idle log" in text
        assert "older than 1 d" in text
    _, told, _ = invoke(capsys, "recommend", *where, *LOOK, *GOAL, "--json")
    assert len(told[0]["cautions"]) == 2


HOST, USER, PASSWORD = "127.0.0.1", "blind", "canary"
LISTENER = "SASL_PLAINTEXT"


class Odd:
    """A broker whose cleaner is off, and where a client with a password may do only what it is allowed by name."""

    def __init__(self) -> None:
        with ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
            for one in sockets:
                one.bind((HOST, 0))
            plain, guarded, controller = (one.getsockname()[1] for one in sockets)
        listeners = f"PLAINTEXT://{HOST}:{plain},{LISTENER}://{HOST}:{guarded}"
        jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        overrides: dict[str, object] = {
            "log.cleaner.enable": "false",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{LISTENER}:{LISTENER}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        }
        self.kafka = EmbeddedKafka(port=plain, overrides=overrides)
        self.guarded = f"{HOST}:{guarded}"
        self.settings: dict[str, object] = {
            "security.protocol": LISTENER,
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def allow(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        found = (kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation)
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for answer in admin.create_acls([AclBinding(*found, AclPermissionType.ALLOW)]).values():
            answer.result(10)


@pytest.fixture(scope="module")
def odd() -> Iterator[Odd]:
    made = Odd()
    with made.kafka:
        fill(made.kafka.bootstrap, "uncleaned", {"cleanup.policy": "compact"})
        yield made


def test_a_broker_without_a_cleaner_is_found_out(odd: Odd, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--brokers", odd.kafka.bootstrap, "--topic", "uncleaned"]
    code, told, _ = invoke(capsys, "recommend", *where, *LOOK, *GOAL, "--json")
    assert code == ConfigError.exit_code
    assert "log.cleaner.enable=false" in told[0]["message"]


def test_a_client_is_told_what_it_may_not_see(
    odd: Odd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """First nothing at all; then the topic, but not the brokers' settings."""
    kept = tmp_path / "client.properties"
    lines = {"bootstrap.servers": odd.guarded, **odd.settings}
    kept.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    hidden = ["--client-config", str(kept), "--topic", "uncleaned"]
    for command in ("recommend", "apply"):
        code, told, _ = invoke(capsys, command, *hidden, *LOOK, *GOAL, "--json")
        assert code == TopicMissing.exit_code
        assert "or you may not see it" in told[0]["message"]
    with closing(ClusterAdmin(odd.guarded, odd.settings)) as admin:
        with pytest.raises(TopicMissing) as missing:
            admin.partition_counts(["uncleaned"])
        assert "or you may not see it" in missing.value.message
        assert "DESCRIBE" in missing.value.action
        for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
            odd.allow(ResourceType.TOPIC, "uncleaned", operation)
        odd.allow(ResourceType.GROUP, "*", AclOperation.READ)
        odd.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.DESCRIBE)
        with closing(connect(odd.guarded, odd.settings)) as cluster:
            options = MeasureOptions(seconds=0.2, restore=RestoreRate(100_000))
            found = measure(cluster, "uncleaned", admin=admin, options=options)
    assert not found.cleaners_known
    assert "Kafka's defaults are assumed" in " ".join(cautions(found))
    code, _, text = invoke(capsys, "measure", *hidden, *LOOK)
    assert code == 0
    assert "Kafka's defaults are assumed" in text
