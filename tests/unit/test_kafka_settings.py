"""Settings of the Kafka clients: the user's pass through, ours hold, secrets stay hidden."""

from __future__ import annotations

import pytest

from stateflow.errors import ConfigError
from stateflow.log.kafka import KafkaCluster, KafkaOptions, redacted
from stateflow.log.kafka.settings import checked, member_settings, reader_settings, writer_settings

CANARY = "canary-7f3a"
SECURE = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "reader",
    "sasl.password": CANARY,
    "ssl.key.password": CANARY,
    "ssl.key.pem": CANARY,
    "ssl.keystore.password": CANARY,
    "sasl.oauthbearer.client.secret": CANARY,
    "sasl.oauthbearer.config": f"principal=x secret={CANARY}",
}


def test_every_client_gets_the_users_settings_untouched() -> None:
    options = KafkaOptions()
    for made in (
        reader_settings("b", SECURE, options),
        writer_settings("b", SECURE, options, "tx"),
        member_settings("b", SECURE, options, "g", None),
    ):
        assert {name: made[name] for name in SECURE} == SECURE
        assert made["bootstrap.servers"] == "b"


def test_secrets_are_hidden_and_the_rest_is_shown() -> None:
    shown = redacted(SECURE)
    assert CANARY not in repr(shown)
    assert shown["sasl.username"] == "reader"
    assert shown["security.protocol"] == "SASL_SSL"


def test_a_cluster_shows_no_secret_of_its_own() -> None:
    cluster = KafkaCluster("127.0.0.1:1", {"client.id": "x", "ssl.key.password": CANARY})
    assert CANARY not in repr(cluster)
    assert CANARY not in str(cluster)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("isolation.level", "read_uncommitted"),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", True),
        ("partitioner", "consistent_random"),
        ("enable.idempotence", False),
        ("acks", 1),
        ("bootstrap.servers", "elsewhere:9092"),
        ("group.id", "g"),
        ("transactional.id", "t"),
        ("partition.assignment.strategy", "range"),
    ],
)
def test_what_the_promises_rest_on_cannot_be_changed(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        checked({name: value})
    with pytest.raises(ConfigError, match=name):
        KafkaCluster("127.0.0.1:1", {name: value})


def test_repeating_what_holds_anyway_is_fine() -> None:
    same = {"isolation.level": "read_committed", "enable.idempotence": "true", "acks": "all"}
    assert checked(same) == same


def test_bulk_readers_look_at_a_full_queue_again_soon() -> None:
    made = reader_settings("b", {}, KafkaOptions(queued_kbytes=1234))
    assert made["fetch.queue.backoff.ms"] <= 5
    assert made["queued.max.messages.kbytes"] == 1234
    assert reader_settings("b", {"fetch.queue.backoff.ms": 2}, KafkaOptions())["fetch.queue.backoff.ms"] == 2


def test_static_members_are_named() -> None:
    options = KafkaOptions()
    assert member_settings("b", {}, options, "g", "worker-1")["group.instance.id"] == "worker-1"
    assert "group.instance.id" not in member_settings("b", {}, options, "g", None)


def test_records_do_not_outlive_their_transaction() -> None:
    made = writer_settings("b", {}, KafkaOptions(transaction_timeout_ms=7_000), "tx")
    assert made["message.timeout.ms"] == made["transaction.timeout.ms"] == 7_000
    assert "transaction.timeout.ms" not in writer_settings("b", {}, KafkaOptions(), None)
