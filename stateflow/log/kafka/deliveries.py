"""What became of the records of a transaction: told by the Python client's reports, and by the core of those it sent.

A report is a dictionary's own ``__setitem__(error, message)``, which runs no Python code and so costs a tenth of
producing instead of four times as much: what is left under ``None`` is the last success of its partition, and any
other key is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from confluent_kafka import KafkaError

from stateflow.log.base import Appended
from stateflow.log.kafka.sends import Sends
from stateflow.log.outgoing import Outgoing
from stateflow.record import TopicPartition

Report = Callable[[Any, Any], None]
"""What the client calls with an error, or None, and a record's message."""

Row = tuple[Any, ...]


def rows_of(records: Outgoing, places: Sequence[int] | int, reports: Mapping[int, Report]) -> Iterator[Row]:
    """The arguments of ``produce`` for each record, by position: keywords take twice as long, or more.

    They are topic, value, key, partition, callback, the same callback under its other name, timestamp, headers.
    """
    times_ms = records.timestamps_ms
    columns: list[Iterable[Any]] = [repeat(records.topic), records.values, records.keys]
    if isinstance(places, int):
        columns += [repeat(places), repeat(reports[places])]
    else:
        columns += [places, map(reports.__getitem__, places)]
    if times_ms is not None or records.headers:
        columns += [repeat(None), times_ms if isinstance(times_ms, Sequence) else repeat(times_ms or 0)]
    if records.headers:
        columns.append([list(headers) if headers else None for headers in records.headers])
    return zip(*columns, strict=False)  # of one length, or endless: ``Outgoing`` sees to that


class Deliveries:
    """Reports by partition. ``sends`` is what the core has sent, where it is in use."""

    def __init__(self, sends: Sends | None) -> None:
        self._sends = sends
        self._reports: dict[tuple[str, int], dict[KafkaError | None, Any]] = {}

    def report(self, topic: str, partition: int) -> Report:
        """What is called with the outcome of each record of a partition; −1 is whichever the client chooses."""
        if partition < 0:
            return self._report_chosen
        return self._reports.setdefault((topic, partition), {}).__setitem__

    def failures(self) -> Iterator[tuple[str, KafkaError]]:
        """Topics and errors of records that were not delivered, of each partition the first one first.

        Behind them come records that failed only because another one of their batch did, which has the reason.
        """
        behind = []
        for topic, error in self._failures():
            if error.code() == KafkaError._INVALID_DIFFERENT_RECORD:
                behind.append((topic, error))
            else:
                yield topic, error
        yield from behind

    def appended(self) -> dict[TopicPartition, Appended]:
        """Where the last record of each partition landed."""
        landed = {
            TopicPartition(*place): Appended(outcomes[None].offset(), outcomes[None].timestamp()[1])
            for place, outcomes in self._reports.items()
            if None in outcomes
        }
        for sent in self._sends.outcomes() if self._sends is not None else ():
            place = TopicPartition(sent.topic, sent.partition)
            reported = landed.get(place)
            if sent.successes and (reported is None or reported.offset < sent.offset):
                landed[place] = Appended(sent.offset, sent.timestamp_ms)
        return landed

    def forget(self) -> None:
        """Begin anew: late reports of what was aborted go into what is no longer looked at."""
        self._reports = {}
        if self._sends is not None:
            self._sends.forget()

    def _failures(self) -> Iterator[tuple[str, KafkaError]]:
        for (topic, _), outcomes in self._reports.items():
            yield from ((topic, error) for error in outcomes if error is not None)
        for sent in self._sends.outcomes() if self._sends is not None else ():
            if sent.failure is not None:
                yield sent.topic, sent.failure

    def _report_chosen(self, error: KafkaError | None, message: Any) -> None:
        self.report(message.topic(), max(0, message.partition()))(error, message)
