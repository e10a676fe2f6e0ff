"""Which of the client library's errors pass by themselves, and what the others are called."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from stateflow.errors import BrokerRefused, BrokerUnreachable
from stateflow.log.kafka.connection_errors import FailedConnection
from stateflow.log.kafka.deliveries import Deliveries
from stateflow.log.kafka.failures import aborted, is_passing, typed
from stateflow.log.kafka.offsets import answered
from stateflow.record import TopicPartition


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    ],
)
def test_a_leader_that_changes_is_waited_for(code: int) -> None:
    error = KafkaError(code)
    assert is_passing(error)
    assert isinstance(typed(error, "asking for offsets", "here:9092"), BrokerUnreachable)


def test_what_waited_for_a_broker_that_is_gone_may_be_sent_again() -> None:
    error = KafkaError(KafkaError._DESTROY)
    assert is_passing(error)
    assert isinstance(typed(error, "producing", "here:9092"), BrokerUnreachable)


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_a_broker_that_refuses_the_connection_is_waited_for_and_named(code: int) -> None:
    error = KafkaError(code, "b:1/1: refused")
    assert is_passing(error)
    failure = typed(error, "asking for offsets", "here:9092")
    assert isinstance(failure, BrokerUnreachable)
    assert "refused" in failure.message
    assert "sasl.password" in failure.action or "ssl.ca.location" in failure.action


def test_a_connection_that_failed_is_the_reason_unless_a_broker_gave_another() -> None:
    failed = FailedConnection("b:1/1: Connection refused", "look.")
    silence = typed(KafkaError(KafkaError._TIMED_OUT), "asking", "here:9092", failed)
    assert (silence.message, silence.action) == (
        "No answer from Kafka at here:9092 while asking (b:1/1: Connection refused).",
        "look.",
    )
    told = typed(KafkaError(KafkaError.LEADER_NOT_AVAILABLE), "asking", "here:9092", failed)
    assert "LEADER_NOT_AVAILABLE" in told.message
    assert "refused" not in told.message


def test_no_answer_is_never_an_empty_log() -> None:
    known, silent = TopicPartition("t", 0), TopicPartition("t", 1)
    assert answered({known: 0, silent: 7}) == {known: 0, silent: 7}
    with pytest.raises(KafkaException) as raised:
        answered({known: 0, silent: -1001})
    assert is_passing(raised.value.args[0])
    assert "t[1]" in str(raised.value)


def test_what_the_broker_refuses_for_good_is_not_tried_again() -> None:
    error = KafkaError(KafkaError.POLICY_VIOLATION)
    assert not is_passing(error)
    assert isinstance(typed(error, "trimming", "here:9092"), BrokerRefused)


def test_a_record_that_failed_with_another_one_of_its_batch_does_not_hide_why() -> None:
    deliveries = Deliveries(None)
    report = deliveries.report("t", 0)
    for code in (KafkaError._INVALID_DIFFERENT_RECORD, KafkaError.INVALID_TIMESTAMP):
        report(KafkaError(code), None)
    topic, error = next(deliveries.failures())
    assert (topic, error.code()) == ("t", KafkaError.INVALID_TIMESTAMP)
    told = aborted(error, "records for 't' were to be taken", "id")
    assert isinstance(told, BrokerRefused)
    assert "message.timestamp.after.max.ms" in told.action
    alone = aborted(KafkaError(KafkaError._INVALID_DIFFERENT_RECORD), "producing", "id")
    assert isinstance(alone, BrokerRefused), "the record that has the reason is in the batch each time"
