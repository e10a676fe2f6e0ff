"""Settings of the Kafka clients: the user's pass through, ours hold, secrets stay hidden."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from stateflow.errors import ConfigError
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.log.kafka.settings import (
    Settings,
    checked,
    member_settings,
    reader_settings,
    writer_settings,
)
from stateflow.memory import (
    MEMORY_BYTES,
    MEMORY_BYTES_MIN,
    QUEUED_RECORD_BYTES,
    SENT_RECORD_BYTES,
    memory_shares,
)
from stateflow.redaction import redacted
from stateflow.setting_bounds import BYTES_MAX

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
    shown = {name: redacted(name, value) for name, value in SECURE.items()}
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
    made = reader_settings("b", {}, KafkaOptions())
    assert made["fetch.queue.backoff.ms"] <= 5
    assert reader_settings("b", {"fetch.queue.backoff.ms": 2}, KafkaOptions())["fetch.queue.backoff.ms"] == 2


def queue_bytes(made: Settings) -> int:
    """What a consumer's queue may take: contents, and what the client adds to each record."""
    contents_bytes = int(made["queued.max.messages.kbytes"]) * 1024
    return contents_bytes + int(made["queued.min.messages"]) * QUEUED_RECORD_BYTES


@pytest.mark.parametrize("limit_bytes", [MEMORY_BYTES_MIN, MEMORY_BYTES, 8 << 30])
def test_queues_of_clients_keep_to_their_shares(limit_bytes: int) -> None:
    shares = memory_shares(limit_bytes)
    options = KafkaOptions.within(shares, restores=4)
    member = member_settings("b", {}, options, "g", None)
    assert 0.9 * shares.input_bytes / 2 < queue_bytes(member) <= shares.input_bytes / 2
    reader = reader_settings("b", {}, options)
    assert 0.9 * shares.restore_bytes / 8 < queue_bytes(reader) <= shares.restore_bytes / 8
    writer = writer_settings("b", {}, options, "t")
    assert writer["queue.buffering.max.kbytes"] * 1024 > writer["message.max.bytes"], "or it would never go"
    assert writer["queue.buffering.max.messages"] * SENT_RECORD_BYTES <= shares.output_bytes


def test_clients_take_their_shares_of_a_large_machine() -> None:
    """More than some 34 GB for a worker was a bound that the client refuses."""
    options = KafkaOptions.within(memory_shares(BYTES_MAX), restores=1)
    member, writer = member_settings("b", {}, options, "g", None), writer_settings("b", {}, options, "t")
    Consumer(member).close()
    Consumer(reader_settings("b", {}, options)).close()
    Producer(writer)
    most = (member["queued.max.messages.kbytes"], writer["queue.buffering.max.kbytes"])
    assert most == (2_097_151, 2**31 - 1), "the most that the client takes"


def test_a_users_own_bound_on_a_queue_holds() -> None:
    own = {
        "queued.max.messages.kbytes": 77,
        "fetch.max.bytes": 2_000_000,
        "queue.buffering.max.kbytes": 70_000,
    }
    options = KafkaOptions()
    assert member_settings("b", own, options, "g", None).items() >= own.items()
    assert reader_settings("b", own, options).items() >= own.items()
    assert writer_settings("b", own, options, "t").items() >= own.items()


def test_many_writers_tell_statistics_less_often() -> None:
    """Each event costs the more the more partitions there are, so the sum over all writers must hardly grow."""
    intervals_ms = [
        writer_settings("b", {}, KafkaOptions(statistics_ms=500), "t", writers)["statistics.interval.ms"]
        for writers in range(64)
    ]
    assert set(intervals_ms[:9]) == {500}
    assert intervals_ms == sorted(intervals_ms)
    assert intervals_ms[-1] <= 4_000, "a commit in doubt waits for two of them, 10 s at most"
    events_per_second = [sum(1_000 / ms for ms in intervals_ms[:count]) for count in (8, 64)]
    assert events_per_second[1] < 4 * events_per_second[0]
    assert writer_settings("b", {}, KafkaOptions(), "t", 64)["statistics.interval.ms"] == 0


@pytest.mark.parametrize(
    ("commit_seconds", "statistics_ms"), [(0.0, 50), (0.1, 50), (0.5, 250), (1.0, 500), (60, 500)]
)
def test_whoever_commits_seldom_needs_statistics_less_often(
    commit_seconds: float, statistics_ms: int
) -> None:
    options = KafkaOptions.within(memory_shares(), commit_interval_seconds=commit_seconds)
    assert options.statistics_ms == statistics_ms
    assert writer_settings("b", {}, options, "t")["statistics.interval.ms"] == statistics_ms


def test_who_waits_for_what_comes_asks_less_often_than_who_reads_to_an_end() -> None:
    reads, follows = (reader_settings("b", {}, KafkaOptions(), follows=follows) for follows in (False, True))
    assert reads["fetch.wait.max.ms"] * 50 == follows["fetch.wait.max.ms"]


def test_a_member_is_told_of_a_rebalance_within_a_second() -> None:
    """Members rebalance twice: partitions that move are nobody's until all have heard of the second time."""
    assert member_settings("b", {}, KafkaOptions(), "g", None)["heartbeat.interval.ms"] <= 1_000


def test_static_members_are_named() -> None:
    options = KafkaOptions()
    assert member_settings("b", {}, options, "g", "worker-1")["group.instance.id"] == "worker-1"
    assert "group.instance.id" not in member_settings("b", {}, options, "g", None)


def test_records_do_not_outlive_their_transaction() -> None:
    made = writer_settings("b", {}, KafkaOptions(transaction_timeout_ms=7_000), "tx")
    assert made["message.timeout.ms"] == made["transaction.timeout.ms"] == 7_000
    assert "transaction.timeout.ms" not in writer_settings("b", {}, KafkaOptions(), None)


def test_what_nobody_sees_before_a_commit_is_sent_in_fewer_requests() -> None:
    options = KafkaOptions(linger_ms=10, transaction_linger_ms=100)
    assert writer_settings("b", {}, options, "t")["linger.ms"] == 100
    assert writer_settings("b", {}, options, None)["linger.ms"] == 10
    assert writer_settings("b", {"linger.ms": 3}, options, "t")["linger.ms"] == 3, "as the user says"
    short_lived = writer_settings("b", {"transaction.timeout.ms": "500"}, options, "t")
    assert short_lived["linger.ms"] == 50, "the client refuses records that linger beyond their time-out"
