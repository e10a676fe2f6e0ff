"""Addresses of brokers as people write them: ``host:port[,host:port…]``."""

from __future__ import annotations

import re

from stateflow.errors import ConfigError

PORT_MAX = 65_535
_DEFAULT_PORT = 9092
_ADDRESS = re.compile(r"(?:\w+://)?(?P<host>\[[^\]]+\]|[^:\[\]\s]*)(?::(?P<port>[^:]*))?")


def check_addresses(brokers: str, said: str) -> None:
    """Raise ``ConfigError`` for a malformed address. Of a port above 65535 the client would take the remainder."""
    for address in _each(brokers):
        match = _ADDRESS.fullmatch(address)
        if match is None or match["port"] == "" or (match["port"] is None and not match["host"]):
            raise _refused(brokers, said, f"{address!r} is no address of a broker")
        if match["port"] is not None and not is_port(match["port"]):
            raise _refused(brokers, said, f"{match['port']!r} is no port from 1 to {PORT_MAX}")
    if not _each(brokers):
        raise _refused(brokers, said, "it names no broker")


def first_address(brokers: str) -> tuple[str, int]:
    """Host and port of the first broker, as sockets take them. The addresses were checked."""
    match = _ADDRESS.fullmatch(_each(brokers)[0])
    assert match is not None, f"{brokers!r} was not checked"
    return match["host"].strip("[]") or "localhost", int(match["port"] or _DEFAULT_PORT)


def is_port(text: str) -> bool:
    """Whether a text is the number of a port that can be connected to."""
    return re.fullmatch(r"[0-9]{1,5}", text) is not None and 1 <= int(text) <= PORT_MAX


def _each(brokers: str) -> list[str]:
    return [address.strip() for address in brokers.split(",") if address.strip()]


def _refused(brokers: str, said: str, why: str) -> ConfigError:
    return ConfigError(
        f"The brokers cannot be {brokers!r} ({said}): {why}.",
        action="write host:port[,host:port…], for example localhost:9092.",
        setting="brokers",
    )
