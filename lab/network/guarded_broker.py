"""A broker that wants TLS and passwords: a listener of every kind, and what a client needs to pass each."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from contextlib import ExitStack
from pathlib import Path

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

from stateflow.connectors.broker import EmbeddedKafka

HOST = "127.0.0.1"
USER, PASSWORD = "tuner", 'canary-"s3cret, with=signs'
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
        """What a broker with these listeners is configured with."""
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
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            # Studies and tests write records of 1970: by their age the broker would soon delete them.
            "log.retention.ms": -1,
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
        """Where a listener is."""
        return f"{HOST}:{self.ports[listener]}"

    def set_scram_password(self, password: str = PASSWORD) -> None:
        """Make the user known to the SCRAM listeners by this password, while the broker runs."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), password.encode())
            for answer in admin.alter_user_scram_credentials([change]).values():
                answer.result(10)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has at this moment."""
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
    """A key, and a certificate of that name signed by another, or by itself."""
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
    """A certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as text, without a password."""
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption())
