"""How long a reader bears brokers that do not answer, and that it can be used again afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from stateflow.clock import ManualClock
from stateflow.errors import BrokerUnreachable
from stateflow.log.kafka.failures import typed
from stateflow.log.kafka.fetching import ClientStuck, Fetching
from stateflow.log.kafka.offsets import Offsets
from stateflow.record import TopicPartition

UNREACHABLE_SECONDS = 60.0
PLACE = TopicPartition("t", 0)


class Silent:
    """A client that has nothing to read, and whose brokers answer or do not."""

    def __init__(self) -> None:
        self.answers = False
        self.asked = 0

    def consume(self, _count: int, _timeout: float) -> list[Any]:
        return []

    def list_topics(self, _topic: str, **_options: object) -> None:
        self.asked += 1
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def away(others_answer: Callable[[], bool] = lambda: False) -> tuple[Fetching, ManualClock, Any]:
    """A reader whose client has lost all brokers."""
    clock = ManualClock()
    fetching = Fetching(clock, "b:1", UNREACHABLE_SECONDS, lambda *_: None, others_answer)
    fetching.positions[PLACE] = 7
    fetching.broker_event(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    return fetching, clock, Silent()


def raised_seconds(fetching: Fetching, clock: ManualClock, client: Any, seconds: int) -> list[float]:
    """When it was said that nobody answers, reading once a second."""
    found = []
    for _ in range(seconds):
        try:
            assert fetching.consume(client, 10, 0) == []
        except BrokerUnreachable:
            found.append(clock.monotonic_seconds())
        clock.advance(seconds=1)
    return found


def test_an_outage_is_told_once_in_a_while_and_costs_no_position() -> None:
    fetching, clock, client = away()
    assert raised_seconds(fetching, clock, client, 200) == [60, 120, 180]
    assert client.asked == 13, "asking takes seconds, and holds up whoever reads"
    assert fetching.positions == {PLACE: 7}


@pytest.mark.parametrize(
    ("code", "advised"),
    [
        (KafkaError._AUTHENTICATION, "sasl.password"),
        (KafkaError._SSL, "ssl.ca.location"),
        (KafkaError._BAD_MSG, "security settings"),
    ],
)
def test_a_connection_that_is_refused_is_an_outage_and_its_reason_is_told(code: int, advised: str) -> None:
    """One event of it ended the application, were the other brokers there or not."""
    fetching, clock, client = away()
    fetching.broker_event(KafkaError(code, "b:1/1: refused (after 3ms in state AUTH_REQ)"))
    assert raised_seconds(fetching, clock, client, 60) == []
    with pytest.raises(BrokerUnreachable, match=r"60 s \(b:1/1: refused\)") as raised:
        fetching.consume(client, 10, 0)
    assert advised in raised.value.action
    assert fetching.positions == {PLACE: 7}


def test_what_a_connection_failed_of_before_an_outage_is_not_its_reason() -> None:
    clock, client = ManualClock(), cast(Any, Silent())
    fetching = Fetching(clock, "b:1", UNREACHABLE_SECONDS, lambda *_: None, lambda: False)
    fetching.broker_event(KafkaError(KafkaError._AUTHENTICATION, "b:1/1: refused"))
    clock.advance(seconds=3_600)
    fetching.broker_event(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    fetching.broker_event(KafkaError(KafkaError._TRANSPORT, "b:1/1: Connection refused"))
    clock.advance(seconds=60)
    with pytest.raises(BrokerUnreachable, match=r"60 s \(b:1/1: Connection refused\)"):
        fetching.consume(client, 10, 0)


def test_one_broker_of_several_that_refuses_is_borne() -> None:
    clock = ManualClock()
    fetching = Fetching(
        clock, "b:1", UNREACHABLE_SECONDS, lambda error, *_: typed(error, "", ""), lambda: False
    )
    fetching.broker_event(KafkaError(KafkaError._AUTHENTICATION, "b:1/1: refused"))
    assert raised_seconds(fetching, clock, Silent(), 200) == []


def test_brokers_that_answer_again_are_no_outage() -> None:
    fetching, clock, client = away()
    assert raised_seconds(fetching, clock, client, 61) == [60]
    client.answers = True
    assert raised_seconds(fetching, clock, client, 200) == []


def test_a_client_that_is_the_only_one_without_brokers_is_to_be_replaced() -> None:
    others: list[bool] = []
    fetching, clock, client = away(lambda: bool(others))
    assert raised_seconds(fetching, clock, client, 40) == []
    others.append(True)
    clock.advance(seconds=15)
    with pytest.raises(ClientStuck):
        fetching.consume(client, 10, 0)
    assert fetching.positions == {PLACE: 7}
    assert raised_seconds(fetching, clock, client, 200) == [], "its successor has brokers"


def test_an_offset_that_is_gone_is_told_though_nobody_tells_where_the_log_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreachable(*_: object) -> None:
        raise BrokerUnreachable("no answer.", action="wait.")

    monkeypatch.setattr(Offsets, "ranges", unreachable)
    error = Offsets(None).out_of_range(PLACE, 7)  # type: ignore[arg-type]
    assert (error.fields["offset"], error.fields["low"]) == (7, -1)
