"""A writer whose records are on their way for a while: sent, and not yet in the log.

A real client hands records to a network thread. They arrive in order within a partition and in no order between
partitions, at any moment up to the next ``flush`` or ``commit``; offsets for a transaction go by another connection and
overtake them. A program that leaves out a ``flush`` it needs runs well on a log that appends at once, and breaks here.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from stateflow.errors import StateflowError
from stateflow.log.base import Appended, Committed, GroupMetadata
from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.memory.broker import MemoryBroker
from stateflow.log.memory.writer import MemoryWriter
from stateflow.log.outgoing import Outgoing
from stateflow.partitioner import partition_of
from stateflow.record import Headers, TopicPartition

_ARRIVES = 0.3
"""Probability that another run of records arrives at a moment at which some may."""


class _Sent(NamedTuple):
    """One record on its way."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers


class DelayedWriter(ForwardingWriter):
    """Implements :class:`stateflow.log.base.Writer` over a :class:`MemoryWriter`, ``inner``.

    What arrives when is drawn from ``rng``, so that one seed is one order.
    """

    def __init__(self, inner: MemoryWriter, broker: MemoryBroker, rng: random.Random) -> None:
        super().__init__(inner)
        self.real = inner
        """The writer at the log's end, whatever ``inner`` was wrapped in."""
        self._broker = broker
        self._random = rng
        self._queues: dict[TopicPartition, deque[_Sent]] = {}
        self._failure: StateflowError | None = None
        self._keyless_total = 0

    def begin(self) -> None:
        """Begin a transaction."""
        self._failure = None
        if self.real.is_transactional:
            self._queues.clear()
        super().begin()

    def append(self, records: Outgoing) -> None:
        """Queue records; some of what is queued arrives. Raises ``TopicMissing``, ``BrokerRefused``."""
        self._raise_failure()
        with self._broker.lock:
            found = self._broker.topic(records.topic)
            now_ms = self._broker.clock.now_ms()
            for key, value, partition, timestamp_ms, headers in records.rows():
                chosen = partition if partition >= 0 else self._choose(key, len(found.partitions))
                found.log(chosen)  # raises where there is none
                target = TopicPartition(records.topic, chosen)
                row = _Sent(key, value, timestamp_ms or now_ms, headers)
                found.payload(key, value, row.timestamp_ms, tuple(headers), self._broker.clock)
                self._queues.setdefault(target, deque()).append(row)
        for _ in records.keys:
            self._deliver_some()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction: they wait for no record."""
        self._raise_failure()
        super().send_offsets(offsets, group, member)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Deliver everything."""
        self._deliver_all()
        super().flush(timeout_seconds)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Deliver everything, then commit."""
        self._deliver_all()
        return super().commit(timeout_seconds)

    def abort(self) -> None:
        """Abort the open transaction; what is on its way never arrives."""
        if self.real.in_transaction:
            self._queues.clear()
        super().abort()

    def close(self) -> None:
        """Abort what is open; without transactions, deliver everything."""
        if self.real.is_transactional:
            self._queues.clear()
        else:
            self._deliver_all()
        super().close()

    @property
    def in_transaction(self) -> bool:
        """True between ``begin`` and the end of a transaction."""
        return self.real.in_transaction

    def late_end_txn(self) -> None:
        """See :meth:`MemoryWriter.late_end_txn`; it finds what has arrived by then."""
        self.real.late_end_txn()

    def kill(self) -> None:
        """Stop as if by SIGKILL: what is on its way never arrives."""
        self._queues.clear()
        self.real.kill()

    def let_arrive(self) -> None:
        """Let some of what is on its way arrive, outside of any call; what goes wrong comes out of the next one."""
        try:
            self._deliver_some()
        except StateflowError as error:
            self._queues.clear()
            self._failure = error

    def _choose(self, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of(key, partitions)
        self._keyless_total += 1
        return self._keyless_total % partitions

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _deliver_some(self) -> None:
        if self.real.is_transactional and not self.real.in_transaction:
            self._queues.clear()  # it was aborted: by a stale member, or by whoever fenced this writer
        while self._queues and self._random.random() < _ARRIVES:
            target = self._random.choice(list(self._queues))
            self._deliver(target, self._random.randint(1, len(self._queues[target])))

    def _deliver_all(self) -> None:
        self._raise_failure()
        while self._queues:
            target = self._random.choice(list(self._queues))
            self._deliver(target, len(self._queues[target]))

    def _deliver(self, target: TopicPartition, count: int) -> None:
        queue = self._queues[target]
        rows = [queue.popleft() for _ in range(count)]
        if not queue:
            del self._queues[target]
        keys, values, timestamps_ms, headers = (list(column) for column in zip(*rows, strict=True))
        self.inner.append(
            Outgoing(
                target.topic, keys, values, target.partition, timestamps_ms, headers if any(headers) else None
            )
        )
