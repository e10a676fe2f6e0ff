"""Records on their way to a topic, as columns, and the one way in which every writer takes them.

A writer implements ``append``. Sending one record, or many, is a matter of making columns, and is written here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from stateflow.record import Headers

OutgoingRow = tuple[bytes | None, bytes | None, int, int, Headers]
"""Key, value, partition, time (0: that of sending) and headers of one record."""

FIRST_TIME_MS = 1
"""What event time 0 is written as: to the client library 0 says that there is no time, which is the time of sending."""


@dataclass(slots=True)  # not frozen: making a frozen one takes longer than producing its record
class Outgoing:
    """Records for one topic in the order in which they are to be written, in columns of equal length.

    What is the same for every record is given once: its partition, its time. ``partitions`` −1 lets the pinned
    default partitioner (murmur2) choose. No time is the time of sending; 0 becomes ``FIRST_TIME_MS``.
    """

    topic: str
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    partitions: Sequence[int] | int
    timestamps_ms: Sequence[int] | int | None = None
    headers: Sequence[Headers] | None = None
    """None, or empty, when no record has any."""

    def __post_init__(self) -> None:
        rows = len(self.keys)
        is_whole = (
            len(self.values) == rows
            and (isinstance(self.partitions, int) or len(self.partitions) == rows)
            and (
                self.timestamps_ms is None
                or isinstance(self.timestamps_ms, int)
                or len(self.timestamps_ms) == rows
            )
            and (not self.headers or len(self.headers) == rows)
        )
        if not is_whole:  # found before anything is sent, not behind the end of the shortest
            raise ValueError(f"columns of different lengths for {self.topic!r}, which has {rows} keys")
        times_ms = self.timestamps_ms
        if times_ms == 0:
            self.timestamps_ms = FIRST_TIME_MS
        elif isinstance(times_ms, Sequence) and 0 in times_ms:
            self.timestamps_ms = [each or FIRST_TIME_MS for each in times_ms]

    def __len__(self) -> int:
        return len(self.keys)

    def partition_column(self) -> Sequence[int]:
        """The partition of each record."""
        return [self.partitions] * len(self.keys) if isinstance(self.partitions, int) else self.partitions

    def timestamp_column(self) -> Sequence[int]:
        """The time of each record; 0 is the time of sending, where none was given."""
        times_ms = self.timestamps_ms or 0
        return [times_ms] * len(self.keys) if isinstance(times_ms, int) else times_ms

    def rows(self) -> Iterator[OutgoingRow]:
        """The records, one by one."""
        headers = self.headers or [()] * len(self.keys)
        places, times_ms = self.partition_column(), self.timestamp_column()
        return zip(self.keys, self.values, places, times_ms, headers, strict=True)


class Sender(Protocol):
    """Takes records for topics. A writer says how in ``append``, and overrides nothing else of this class.

    A ``send`` of its own would be passed by: other writers hand on what they are given by ``append``.
    """

    @abstractmethod
    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order. Their columns must not be changed before the commit.

        Brokers delete by timestamps: a topic of old events needs ``retention.ms=-1``. Raises ``TopicMissing``,
        ``TransactionAborted``, ``ProducerFenced``.
        """
        ...

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        *,
        partition: int,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Queue one record; see ``append`` and :class:`Outgoing`."""
        self.append(
            Outgoing(topic, (key,), (value,), partition, timestamp_ms, (headers,) if headers else None)
        )

    def send_many(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        *,
        partitions: Sequence[int] | int,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Queue many records, in order; see ``append`` and :class:`Outgoing`."""
        self.append(Outgoing(topic, keys, values, partitions, timestamps_ms, headers))
