"""The tuner on a broker that wants TLS and passwords: its own socket client, and the commands, by real handshakes."""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stateflow.cli.main import run
from stateflow.compaction import ClusterAdmin, changelog_bytes
from stateflow.compaction.cluster.wire import WireConnection
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import BrokerRefused, BrokerUnreachable, ConfigError
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import connect

pytestmark = pytest.mark.broker
HOST, TOPIC = "127.0.0.1", "guarded-changelog"
USER, PASSWORD = "tuner", 'canary-"s3cret", with=signs'
LISTENERS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL", "MUTUAL")


class Guarded:
    """A broker with a listener of every kind, and what a client needs to pass each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "authority.pem"
        self.certificate, self.key = folder / "client.pem", folder / "client.key"
        self.stranger = folder / "stranger.pem"
        broker_store = folder / "broker.pem"
        make_certificates(self, broker_store)
        ports = free_ports(2 + len(LISTENERS))
        self.plain_port = ports[0]
        self.ports = dict(zip(LISTENERS, ports[2:], strict=True))
        self.kafka = EmbeddedKafka(port=ports[0], overrides=self.overrides(ports[1], broker_store))

    def overrides(self, controller_port: int, store: Path) -> dict[str, object]:
        jaas = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
        plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{jaas}";'
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        listeners = [f"PLAINTEXT://{HOST}:{self.plain_port}"]
        listeners += [f"{name}://{HOST}:{port}" for name, port in self.ports.items()]
        found: dict[str, object] = {
            "listeners": ",".join([*listeners, f"CONTROLLER://{HOST}:{controller_port}"]),
            "advertised.listeners": ",".join(listeners),
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,MUTUAL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            found[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                found[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
        return found

    def settings(self, listener: str, mechanism: str | None = None) -> dict[str, object]:
        """What a client of that listener is configured with."""
        found: dict[str, object] = {"security.protocol": "SSL" if listener == "MUTUAL" else listener}
        if "SSL" in str(found["security.protocol"]):
            found["ssl.ca.location"] = str(self.authority)
        if listener == "MUTUAL":
            found |= {"ssl.certificate.location": str(self.certificate), "ssl.key.location": str(self.key)}
        if mechanism is not None:
            found |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
        return found

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def add_scram_users(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
            for answer in admin.alter_user_scram_credentials([change]).values():
                answer.result(10)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def make_certificates(guarded: Guarded, broker_store: Path) -> None:
    """An authority, a broker and a client signed by it, and an authority that signed nobody here."""
    authority_key, authority = signed("authority", None)
    guarded.authority.write_bytes(pem(authority))
    guarded.stranger.write_bytes(pem(signed("stranger", None)[1]))
    broker_key, broker = signed("broker", (authority_key, authority))
    broker_store.write_bytes(private(broker_key) + pem(broker) + pem(authority))
    client_key, client = signed("client", (authority_key, authority))
    guarded.certificate.write_bytes(pem(client))
    guarded.key.write_bytes(private(client_key))


Signer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def signed(name: str, by: Signer | None) -> Signer:
    key, subject = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
    )
    signer, issuer = (key, subject) if by is None else (by[0], by[1].subject)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=2))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False
        )
    )
    return key, builder.sign(signer, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("tls"))
    with made.kafka:
        made.add_scram_users()
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
