"""The socket client, and the tuner's commands with it, on a broker that wants TLS and passwords, by real handshakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
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

from stateflow.cli.main import run
from stateflow.compaction import ClusterAdmin, changelog_bytes
from stateflow.errors import BrokerRefused, BrokerUnreachable, ConfigError
from stateflow.lab.network.guarded_broker import HOST, PASSWORD, USER, Guarded
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.log.kafka.wire import WireConnection
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import TopicPartition

pytestmark = pytest.mark.broker
TOPIC = "guarded-changelog"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("tls"))
    with made.kafka:
        made.set_scram_password()
        cluster = connect(made.kafka.bootstrap)
        cluster.create([TopicSpec(TOPIC, 2, 1, {"cleanup.policy": "compact"})])
        writer = cluster.writer()
        for number in range(500):
            writer.send(TOPIC, b"k%d" % (number % 50), b"v" * 200, partition=number % 2)
        writer.commit()
        writer.close()
        cluster.close()
        yield made


WAYS = [
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SSL", None),
    ("MUTUAL", None),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_log_sizes_and_releases_are_told_over_every_kind_of_listener(
    guarded: Guarded, listener: str, mechanism: str | None
) -> None:
    admin = ClusterAdmin(guarded.address(listener), guarded.settings(listener, mechanism))
    try:
        assert changelog_bytes(admin, TOPIC) > 500
        assert admin.version()[0] >= (4, 0)
    finally:
        admin.close()


def test_a_wrong_password_a_strange_authority_and_a_missing_certificate_are_typed(guarded: Guarded) -> None:
    wrong = {**guarded.settings("SASL_PLAINTEXT", "SCRAM-SHA-256"), "sasl.password": "canary-wrong"}
    with pytest.raises(BrokerRefused) as refused:
        WireConnection(HOST, guarded.ports["SASL_PLAINTEXT"], wrong)
    assert "canary" not in str(refused.value)
    plain = {**wrong, "sasl.mechanism": "PLAIN"}
    with pytest.raises(BrokerRefused):
        WireConnection(HOST, guarded.ports["SASL_PLAINTEXT"], plain)
    strange = {**guarded.settings("SSL"), "ssl.ca.location": str(guarded.stranger)}
    with pytest.raises(BrokerUnreachable) as unreachable:
        WireConnection(HOST, guarded.ports["SSL"], strange)
    assert "certificate" in str(unreachable.value).lower()
    with pytest.raises(BrokerUnreachable):
        WireConnection(HOST, guarded.ports["MUTUAL"], guarded.settings("SSL")).request(18, 0, b"")
    with pytest.raises(ConfigError):
        WireConnection(HOST, guarded.ports["SASL_SSL"], guarded.settings("SASL_SSL", "OAUTHBEARER"))


REFUSALS: list[tuple[str, str | None, Callable[[Guarded], dict[str, object]], str]] = [
    ("SASL_PLAINTEXT", "SCRAM-SHA-256", lambda _: {"sasl.password": "canary-wrong"}, "sasl.password"),
    ("SASL_PLAINTEXT", "PLAIN", lambda _: {"sasl.username": "nobody"}, "sasl.username"),
    ("SSL", None, lambda guarded: {"ssl.ca.location": str(guarded.stranger)}, "ssl.ca.location"),
    ("SSL", None, lambda _: {"security.protocol": "PLAINTEXT"}, "security settings"),
]


@pytest.mark.parametrize(("listener", "mechanism", "wrong", "advised"), REFUSALS)
def test_a_first_contact_that_fails_tells_why(
    guarded: Guarded,
    listener: str,
    mechanism: str | None,
    wrong: Callable[[Guarded], dict[str, object]],
    advised: str,
) -> None:
    settings = {**guarded.settings(listener, mechanism), **wrong(guarded)}
    with pytest.raises(BrokerUnreachable) as raised:
        connect(guarded.address(listener), settings, timeout_seconds=1.0)
    assert guarded.address(listener) in raised.value.message
    assert advised in raised.value.action
    assert "canary" not in str(raised.value)


def test_a_name_that_the_certificate_does_not_carry_is_refused_unless_told_otherwise(
    guarded: Guarded,
) -> None:
    settings = guarded.settings("SSL")
    with pytest.raises(BrokerUnreachable):
        WireConnection("localhost", guarded.ports["SSL"], settings)
    relaxed = {**settings, "ssl.endpoint.identification.algorithm": "none"}
    WireConnection("localhost", guarded.ports["SSL"], relaxed).close()


def measured(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    arguments = ["--topic", TOPIC, "--seconds", "200ms", "--rate", "100", "--restore-rate", "100000"]
    code = run(["compaction", "measure", "--client-config", str(path), *arguments, *more, "--json"])
    streams = capsys.readouterr()
    assert "canary" not in streams.out + streams.err
    return code, streams.out


def test_the_commands_take_a_properties_file(
    guarded: Guarded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once as librdkafka names things, once as Kafka's own tools do."""
    settings = guarded.settings("SASL_SSL", "SCRAM-SHA-512")
    own = tmp_path / "client.properties"
    own.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    code, out = measured(own, capsys, "--brokers", guarded.address("SASL_SSL"))
    assert code == 0
    assert json.loads(out.splitlines()[-1])["live_keys"] == 50

    escaped = PASSWORD.replace('"', '\\"')
    jvm = tmp_path / "jvm.properties"
    jvm.write_text(
        f"# as for kafka-topics.sh\nbootstrap.servers = {guarded.address('SASL_SSL')}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'  username="{USER}" password="{escaped}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={guarded.authority}\n"
    )
    code, out = measured(jvm, capsys)
    assert code == 0
    assert json.loads(out.splitlines()[-1])["topic"] == TOPIC


def test_the_environment_carries_the_password(
    guarded: Guarded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = guarded.settings("SASL_PLAINTEXT", "PLAIN")
    path = tmp_path / "client.properties"
    path.write_text(
        "".join(f"{name}={value}\n" for name, value in settings.items() if name != "sasl.password")
    )
    monkeypatch.setenv("STATEFLOW_CLIENT__SASL_PASSWORD", PASSWORD)
    assert measured(path, capsys, "--brokers", guarded.address("SASL_PLAINTEXT"))[0] == 0
    monkeypatch.setenv("STATEFLOW_CLIENT__SASL_PASSWORD", "canary-wrong")
    code, out = measured(path, capsys, "--brokers", guarded.address("SASL_PLAINTEXT"))
    assert code in (BrokerRefused.exit_code, BrokerUnreachable.exit_code)
    assert json.loads(out.splitlines()[-1])["error"] in ("BrokerRefused", "BrokerUnreachable")


WRITE_ONLY = "written-not-read"


def let_write(guarded: Guarded, topic: str) -> None:
    """From here on the user may write to the topic and do nothing else with it; so nobody else may anything."""
    admin = AdminClient({"bootstrap.servers": guarded.kafka.bootstrap})
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{USER}",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    for answer in admin.create_acls([rule]).values():
        answer.result(10)


def test_whoever_may_only_write_is_not_told_who_has_transactions_open_and_can_end_its_own(
    guarded: Guarded,
) -> None:
    written, free = TopicPartition(WRITE_ONLY, 0), TopicPartition(TOPIC, 0)
    with closing(connect(guarded.kafka.bootstrap)) as free_cluster:
        free_cluster.create([TopicSpec(WRITE_ONLY, 1)])
        let_write(guarded, WRITE_ONLY)
        before = free_cluster.ranges([written], stable=False)[written]
        settings = guarded.settings("SASL_SSL", "SCRAM-SHA-512")
        with closing(KafkaCluster(guarded.address("SASL_SSL"), settings)) as own:
            own.writer("id").close()
            found = own.transactions.left_open(["id"], [written, free])
            assert found is not None
            assert not found.by_id
            assert found.untold == frozenset({written})
            own.transactions.end("id", [written], None, commit=False)
            own.writer("id").close()  # which waits for it to be in the log
        after = stable_ranges(free_cluster, [written])[written]
    assert after.offset_next == before.offset_next + 1, "a marker, and no record"


def test_settings_that_the_socket_client_does_not_know_are_no_reason_to_stand_still(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"ssl.ca.pem": guarded.authority.read_text(), "security.protocol": "SSL"}
    with closing(KafkaCluster(guarded.address("SSL"), settings)) as own:
        own.writer("id").close()
        assert own.transactions.last("id") is None
        assert own.transactions.left_open(["id"], [TopicPartition(TOPIC, 0)]) is None
    said = [line for line in caplog.messages if "Cannot search for transactions" in line]
    assert len(said) == 1, "once is enough"
    assert "ssl.ca.pem" in said[0]
