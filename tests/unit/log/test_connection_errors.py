"""Why a client reaches no broker, as its connections tell."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from stateflow.errors import BrokerUnreachable
from stateflow.log.kafka import connect
from stateflow.log.kafka.connection_errors import CHECK_ALL, ConnectionErrors, FailedConnection


def said_of(brokers: str) -> str:
    with pytest.raises(BrokerUnreachable) as raised:
        connect(brokers, timeout_seconds=1.0)
    return str(raised.value)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that nobody listens at, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_nobody_listens(silent_port: int) -> None:
    said = said_of(f"127.0.0.1:{silent_port}")
    assert f"127.0.0.1:{silent_port}: Connect to" in said
    assert "failed: Connection refused). What to do" in said


def test_nothing_is_said_of_connections_that_did_not_fail() -> None:
    errors = ConnectionErrors()
    assert errors.known is None
    errors.heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"))
    assert errors.known is None


def test_the_last_failure_that_can_be_acted_on_is_kept_until_it_is_forgotten() -> None:
    errors = ConnectionErrors()
    cut = KafkaError(
        KafkaError._TRANSPORT, "b:1/1: Disconnected (after 3ms in state UP, 1 error(s) suppressed)"
    )
    refused = KafkaError(
        KafkaError._AUTHENTICATION, "b:1/bootstrap: SASL failed (after 0ms in state AUTH_REQ)"
    )
    errors.heard(cut)
    assert errors.known == FailedConnection("b:1/1: Disconnected", CHECK_ALL)
    for error in (refused, cut):
        errors.heard(error)
        assert errors.known is not None
        assert errors.known.text == "b:1: SASL failed"
        assert "sasl.password" in errors.known.action
    errors.forget()
    assert errors.known is None
