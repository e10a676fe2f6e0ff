"""Records handed to a producer by the native core, a batch at a time, and what became of them.

They go the same way as those that Python hands over, in the order of the calls. What is refused is left to Python,
which asks the client for the record once more, and so meets the client's own error, or room in its queue.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from ctypes import c_char_p, c_int32, c_int64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Producer, version

from stateflow.log.kafka.client_core import client_core, with_core
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.settings import Settings
from stateflow.log.outgoing import Outgoing
from stateflow.native.library import Core

_FEW = 16
"""So few records are handed over by Python: a call of the core costs as much as it saves."""
_PYTHON_CLIENTS = ("2.16.",)
"""Versions of the Python client whose report of a delivery is known to pass over a record without a state of its own:
one that did not would crash, so another version is added when ``tests/conformance/test_log_sending.py`` passes with it.
"""
_NO_MEMORY = -2


@dataclass(frozen=True, slots=True)
class SendsCore:
    """The core's functions over what is sent."""

    core: Core
    made: Any
    close: Any
    forget: Any
    place: Any
    outcome: Any
    send: Any
    passed_over: Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of records of a partition."""

    topic: str
    partition: int
    successes: int
    offset: int
    """Of the last success."""

    timestamp_ms: int
    failure: KafkaError | None
    """The first one."""


@functools.cache
def sends_core() -> SendsCore | None:
    """The functions, where the core is in use with this client."""
    used = client_core()
    if used is None:
        return None
    if not str(version()).startswith(_PYTHON_CLIENTS):
        client_log.info("Kafka's records are sent without the native core: not tried with %s.", version())
        return None
    return SendsCore(
        core=used,
        made=used.function("sf_sends_made", c_void_p),
        close=used.function("sf_sends_close", None, c_void_p),
        forget=used.function("sf_sends_forget", None, c_void_p),
        place=used.function("sf_sends_place", c_int64, c_void_p, c_char_p, c_int32),
        outcome=used.function("sf_sends_outcome", None, c_void_p, c_int64, c_void_p),
        send=used.object_function(
            "sf_py_sends_send", c_int64, c_void_p, c_char_p, *[py_object] * 4, c_int32, c_int64
        ),
        passed_over=used.function("sf_reports_passed_over", c_int64),
    )


def made_producer(settings: Settings) -> tuple[Sends | None, Producer]:
    """A producer, and what is sent through it by the core where that is in use."""
    used = sends_core()
    if used is None:
        return None, Producer(settings, logger=client_log)
    try:
        producer = Producer(with_core(used.core, settings), logger=client_log)
    finally:
        address = used.made()
        sends = None if address is None else Sends(used, address)
    return sends, producer


class Sends:
    """The records of one producer, which must not be used after it. Used by one thread at a time."""

    def __init__(self, used: SendsCore, address: int) -> None:
        self._used = used
        self._address: int | None = address
        self._places: dict[tuple[str, int], int] = {}

    def takes(self, records: Outgoing, places: Iterable[int]) -> bool:
        """Whether these can be sent here: many without headers, and no forgotten ones are under way."""
        if len(records) < _FEW or records.headers or self._address is None:
            return False
        return all(self._has_place(records.topic, place) for place in places)

    def send(self, records: Outgoing, places: Sequence[int] | int, first: int, count: int) -> int:
        """Hand over some of the records; how many were taken. Raises ``TypeError`` for what is not bytes."""
        rows = slice(first, first + count)
        times_ms = records.timestamps_ms or 0
        taken: int = self._used.send(
            self._address,
            records.topic.encode(),
            _own(records.keys[rows]),
            _own(records.values[rows]),
            None if isinstance(places, int) else _own(places[rows]),
            None if isinstance(times_ms, int) else _own(times_ms[rows]),
            places if isinstance(places, int) else 0,
            times_ms if isinstance(times_ms, int) else 0,
        )
        return taken

    def outcomes(self) -> Iterator[Outcome]:
        """What became of the records sent since it was forgotten last: of those whose fate is known."""
        told = (c_int64 * 4)()
        for (topic, partition), number in self._places.items():
            self._used.outcome(self._address, number, told)
            successes, offset, time_ms, failure = told
            yield Outcome(
                topic, partition, successes, offset, time_ms, KafkaError(failure) if failure else None
            )

    @property
    def reports_passed_over(self) -> int:
        """Reports of records sent so that no Python ran for, in the whole process. See the core's ``reports.c``."""
        return int(self._used.passed_over())

    def forget(self) -> None:
        """Forget what became of records, and of those under way what will."""
        self._places.clear()
        if self._address is not None:
            self._used.forget(self._address)

    def close(self) -> None:
        """Send nothing more."""
        self.forget()
        address, self._address = self._address, None
        if address is not None:
            self._used.close(address)

    __del__ = close

    def _has_place(self, topic: str, partition: int) -> bool:
        if partition < 0:
            return False
        if (topic, partition) in self._places:
            return True
        number = self._used.place(self._address, topic.encode(), partition)
        if number == _NO_MEMORY:
            raise MemoryError("the native core found no memory")
        if number >= 0:
            self._places[topic, partition] = number
        return bool(number >= 0)


def _own(part: Sequence[Any]) -> list[Any]:
    """A slice as a list of our own, which nobody changes while it is sent."""
    return part if isinstance(part, list) else list(part)
