"""A small Kafka client for requests that the Python clients lack: log sizes, versions, transactions left open.

Speaks PLAINTEXT, SSL and SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) from the same settings as librdkafka.
One request at a time per connection; not thread-safe.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
from collections.abc import Mapping

from stateflow.errors import BrokerRefused, BrokerUnreachable, ConfigError
from stateflow.log.kafka.wire_types import kafka_string

CLIENT_ID = "stateflow"
RESPONSE_BYTES_MAX = 256 * 1024 * 1024
"""A larger answer is a protocol error (or not Kafka), never an allocation."""

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_SCRAM_ITERATIONS_MAX = 1_000_000
_UNSUPPORTED = (
    "ssl.keystore.location",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.engine.location",
)
"""Settings without which the client library would not connect, and which say nothing to this client."""


class WireConnection:
    """One authenticated connection to one broker."""

    def __init__(
        self,
        host: str,
        port: int,
        settings: Mapping[str, object] | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        self.address = f"{host}:{port}"
        self._settings = {name: str(value) for name, value in (settings or {}).items()}
        self._correlation = 0
        self._check_supported()
        try:
            self._socket = self._open(host, port, timeout_seconds)
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            if "SASL" in self._protocol:
                self._authenticate()
        except BaseException:
            self._socket.close()
            raise

    def _check_supported(self) -> None:
        for name in _UNSUPPORTED:
            if name in self._settings:
                raise ConfigError(
                    f"Requests that the client library lacks cannot be sent with the setting {name}.",
                    action="Use ssl.ca.location, ssl.certificate.location and ssl.key.location.",
                    setting=name,
                )

    @property
    def _protocol(self) -> str:
        return self._settings.get("security.protocol", "PLAINTEXT").upper()

    def _open(self, host: str, port: int, timeout_seconds: float) -> socket.socket:
        plain = socket.create_connection((host, port), timeout_seconds)
        if not self._protocol.endswith("SSL"):
            return plain
        try:
            return _ssl_context(self._settings).wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise

    def request(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        """Send one request and return the response after its correlation id.

        ``flexible`` adds the empty tagged-field section to the request header. Raises ``BrokerUnreachable``.
        """
        self._correlation += 1
        client = CLIENT_ID.encode()
        header = struct.pack(">hhih", api_key, version, self._correlation, len(client)) + client
        message = header + (b"\x00" if flexible else b"") + body
        try:
            self._socket.sendall(struct.pack(">i", len(message)) + message)
            (size,) = struct.unpack(">i", self._receive(4))
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                raise OSError(f"an answer of {size} bytes is not Kafka's")
            answer = self._receive(size)
        except OSError as error:
            raise self._unreachable(error) from error
        (correlation,) = struct.unpack_from(">i", answer)
        if correlation != self._correlation:
            raise self._unreachable(OSError("the answer belongs to another request"))
        return answer[4:]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise OSError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def _unreachable(self, error: OSError) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"No answer from the broker at {self.address}: {error}.",
            action="Check the address, the listener's security.protocol and the network, then try again.",
            address=self.address,
        )

    # --- SASL ---------------------------------------------------------------------------------------

    def _authenticate(self) -> None:
        mechanism = self._settings.get("sasl.mechanism") or self._settings.get("sasl.mechanisms") or "GSSAPI"
        if mechanism != "PLAIN" and mechanism not in _SCRAM_HASHES:
            raise ConfigError(
                f"Requests that the client library lacks cannot be sent with sasl.mechanism={mechanism}.",
                action="Use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; give sizes of logs by hand.",
            )
        handshake = self.request(_SASL_HANDSHAKE, 1, kafka_string(mechanism))
        self._refuse_on(struct.unpack_from(">h", handshake)[0], f"SASL mechanism {mechanism}")
        user = self._settings.get("sasl.username", "")
        password = self._settings.get("sasl.password", "")
        if mechanism == "PLAIN":
            self._sasl(b"\x00" + user.encode() + b"\x00" + password.encode())
        else:
            self._scram(_SCRAM_HASHES[mechanism], user, password)

    def _sasl(self, token: bytes) -> bytes:
        answer = self.request(_SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        error, text_length = struct.unpack_from(">hh", answer)
        self._refuse_on(error, "SASL authentication")
        offset = 4 + max(0, text_length)
        (size,) = struct.unpack_from(">i", answer, offset)
        return answer[offset + 4 : offset + 4 + size]

    def _scram(self, hash_name: str, user: str, password: str) -> None:
        """RFC 5802, client side, without channel binding."""
        nonce = base64.b64encode(os.urandom(24)).decode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={name},r={nonce}"
        server_first = self._sasl(f"n,,{first}".encode()).decode()
        fields = dict(part.split("=", 1) for part in server_first.split(","))
        iterations = int(fields["i"])
        if not fields["r"].startswith(nonce) or not 4096 <= iterations <= _SCRAM_ITERATIONS_MAX:
            self._refuse_on(58, "SCRAM exchange")
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), base64.b64decode(fields["s"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        final = f"c=biws,r={fields['r']}"
        signed = f"{first},{server_first},{final}".encode()
        signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        server_final = self._sasl(f"{final},p={proof}".encode()).decode()
        expected = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), signed, hash_name)
        if not hmac.compare_digest(server_final, "v=" + base64.b64encode(expected).decode()):
            self._refuse_on(58, "SCRAM proof of the broker")

    def _refuse_on(self, error: int, what: str) -> None:
        if error:
            raise BrokerRefused(
                f"{what} was refused by {self.address} (Kafka error {error}).",
                action="Check sasl.mechanism, sasl.username and the password's file or environment variable.",
                address=self.address,
                kafka_error=error,
            )


def _ssl_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = settings.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(
            certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password")
        )
    return context
