"""Records handed to a producer by the native core: what is taken, what is refused, what is told of them. No broker."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, Producer

from stateflow.log.kafka.deliveries import Deliveries
from stateflow.log.kafka.sends import Sends, made_producer, sends_core
from stateflow.log.outgoing import Outgoing

QUEUE = 100
LARGE = 2_000
PLACES = (0, 1)

pytestmark = pytest.mark.skipif(sends_core() is None, reason="the native core is not in use")


def records(count: int, value: bytes | None = b"v") -> Outgoing:
    return Outgoing("t", [b"%d" % n for n in range(count)], [value] * count, 0)


@pytest.fixture
def made() -> Iterator[tuple[Sends, Producer]]:
    """A producer that reaches no broker, so that records stay with it until it drops them."""
    sends, producer = made_producer(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "queue.buffering.max.messages": QUEUE,
            "message.max.bytes": LARGE,
            "error_cb": lambda _: None,
        }
    )
    assert sends is not None
    yield sends, producer
    producer.purge()


def queued(sends: Sends) -> int:
    """How many records there are: the room that is left is taken by others."""
    return QUEUE - sends.send(records(QUEUE), 0, 0, QUEUE)


def drop(producer: Producer) -> None:
    """Have the producer drop what it has, and tell of it."""
    producer.purge()
    assert producer.flush(10) == 0


def test_a_full_queue_takes_no_more(made: tuple[Sends, Producer]) -> None:
    sends, producer = made
    assert sends.takes(records(QUEUE), PLACES)
    assert sends.send(records(QUEUE), 0, 0, 60) == 60
    assert sends.send(records(QUEUE), 0, 60, 40) == 40
    assert queued(sends) == QUEUE
    with pytest.raises(BufferError):
        producer.produce("t", b"v")
    drop(producer)
    assert sends.send(records(2 * QUEUE), 1, 0, 2 * QUEUE) == QUEUE


def test_it_stops_at_a_record_that_is_too_large(made: tuple[Sends, Producer]) -> None:
    sends, _ = made
    rows = records(30)
    rows.values = [b"v"] * 20 + [bytes(LARGE)] + [b"v"] * 9
    assert sends.takes(rows, PLACES)
    assert sends.send(rows, 0, 0, 30) == 20
    assert sends.send(rows, 0, 20, 10) == 0
    assert sends.send(rows, 0, 21, 9) == 9
    assert queued(sends) == 29


def test_what_was_dropped_is_told_by_place(made: tuple[Sends, Producer]) -> None:
    sends, producer = made
    rows = Outgoing("t", [b"k"] * 20, [b"v"] * 20, [0, 1] * 10, list(range(20)))
    assert sends.takes(rows, PLACES)
    assert sends.send(rows, rows.partitions, 0, 20) == 20
    assert [(each.successes, each.failure) for each in sends.outcomes()] == [(0, None), (0, None)]
    drop(producer)
    told = [(each.topic, each.partition, each.successes, each.failure) for each in sends.outcomes()]
    dropped = KafkaError(KafkaError._PURGE_QUEUE)
    assert told == [("t", 0, 0, dropped), ("t", 1, 0, dropped)]


def test_it_tells_of_errors_as_the_python_client_does(made: tuple[Sends, Producer]) -> None:
    sends, producer = made
    by_python, by_core = Deliveries(None), Deliveries(sends)
    producer.produce("t", b"v", b"k", 0, by_python.report("t", 0))
    assert sends.takes(records(20), PLACES)
    assert sends.send(records(20), 0, 0, 20) == 20
    drop(producer)
    (_, here), (_, there) = next(by_python.failures()), next(by_core.failures())
    assert [
        (each.code(), each.name(), each.str(), each.fatal(), each.retriable()) for each in (here, there)
    ] == [(KafkaError._PURGE_QUEUE, "_PURGE_QUEUE", here.str(), False, False)] * 2
    assert by_core.appended() == {}
    by_core.forget()
    assert list(by_core.failures()) == []


def test_nothing_is_sent_here_while_forgotten_records_are_under_way(made: tuple[Sends, Producer]) -> None:
    sends, producer = made
    assert sends.takes(records(20), PLACES)
    assert sends.send(records(20), 0, 0, 20) == 20
    sends.forget()
    assert not sends.takes(records(20), PLACES)
    assert list(sends.outcomes()) == []
    drop(producer)
    assert list(sends.outcomes()) == []
    assert sends.takes(records(20), PLACES)
    assert [each.failure for each in sends.outcomes()] == [None, None]


def test_records_of_the_python_client_are_none_of_ours(made: tuple[Sends, Producer]) -> None:
    sends, producer = made
    outcomes: dict[object, object] = {}
    producer.produce("t", b"v", b"k", 0, outcomes.__setitem__)
    sends.forget()
    assert sends.takes(records(20), PLACES)
    drop(producer)
    assert len(outcomes) == 1
    assert [each.failure for each in sends.outcomes()] == [None, None]


def test_reports_of_our_records_do_not_go_through_python(made: tuple[Sends, Producer]) -> None:
    sends, producer = made
    reported: list[object] = []
    before = sends.reports_passed_over
    for _ in range(3):
        producer.produce("t", b"v", b"k", 0, lambda error, _: reported.append(error))
    assert sends.takes(records(20), PLACES)
    assert sends.send(records(20), 0, 0, 20) == 20
    drop(producer)
    assert sends.reports_passed_over - before == 20
    assert len(reported) == 3


def test_what_is_not_bytes_is_left_to_the_client(made: tuple[Sends, Producer]) -> None:
    sends, _ = made
    rows = records(20)
    rows.keys = [*rows.keys[:19], "text"]  # type: ignore[list-item]
    assert sends.takes(rows, PLACES)
    with pytest.raises(TypeError):
        sends.send(rows, 0, 0, 20)
    rows = Outgoing("t", [b"k"] * 20, [b"v"] * 20, [0] * 19 + ["1"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        sends.send(rows, rows.partitions, 0, 20)
    assert queued(sends) == 0


def test_few_records_those_with_headers_and_any_partition_are_left_to_the_client(
    made: tuple[Sends, Producer],
) -> None:
    sends, _ = made
    assert not sends.takes(records(3), PLACES)
    assert not sends.takes(records(50), (-1,))
    with_headers = records(50)
    with_headers.headers = [(("name", b"value"),)] * 50
    assert not sends.takes(with_headers, PLACES)
    sends.close()
    assert not sends.takes(records(50), PLACES)


@pytest.mark.parametrize("first", ["sends", "producer"])
def test_either_may_end_first(first: str) -> None:
    made: dict[str, object] = {}
    sends, producer = made_producer({"bootstrap.servers": "127.0.0.1:1", "error_cb": lambda _: None})
    assert sends is not None
    assert sends.takes(records(20), PLACES)
    assert sends.send(records(20), 0, 0, 20) == 20
    made |= {"sends": sends, "producer": producer}
    del sends, producer
    del made[first]
    gc.collect()
    made.clear()
    gc.collect()
