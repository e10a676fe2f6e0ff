"""Producing to the memory log, in transactions or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from stateflow.errors import MembershipLost, ProducerFenced, TransactionAborted
from stateflow.log.base import Appended, Committed, GroupMetadata
from stateflow.log.memory.broker import MemoryBroker
from stateflow.log.memory.group import MemoryMembership
from stateflow.log.memory.partition import PartitionLog, Payload
from stateflow.log.memory.transactions import OpenTransaction
from stateflow.log.outgoing import Outgoing, Sender
from stateflow.partitioner import partition_of
from stateflow.record import TopicPartition


class MemoryWriter(Sender):
    """Implements :class:`stateflow.log.base.Writer`.

    Without a transactional id, up to ``linger_records`` records wait in the writer until ``commit``, and die
    with it in :meth:`kill`: what a process loses that never flushed.
    """

    def __init__(self, broker: MemoryBroker, transactional_id: str | None, linger_records: int) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._linger_records = linger_records
        self._waiting: list[tuple[TopicPartition, Payload]] = []
        self._appended: dict[TopicPartition, Appended] = {}
        self._in_transaction = False
        self._keyless_total = 0
        self._closed = False
        with broker.lock:
            broker.expire()
            self._epoch = broker.transactions.register(transactional_id) if transactional_id else 0

    def begin(self) -> None:
        """Begin a transaction; the broker hears of it with the first record."""
        assert not self._closed, "the writer is closed"
        assert not self._in_transaction, "commit or abort the open transaction first"
        self._appended.clear()
        self._in_transaction = self._transactional_id is not None

    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order; see the protocol. Raises ``BrokerRefused`` too."""
        assert not self._closed, "the writer is closed"
        assert self._in_transaction or self._transactional_id is None, "begin a transaction first"
        if not records:
            return
        with self._broker.lock:
            self._broker.expire()
            found = self._broker.topic(records.topic)
            clock, transactional_id = self._broker.clock, self._transactional_id
            transaction: OpenTransaction | None = None
            for key, value, partition, timestamp_ms, headers in records.rows():
                if partition < 0:
                    partition = self._choose(key, len(found.partitions))
                log = found.log(partition)  # raises where there is none
                payload = found.payload(key, value, timestamp_ms or clock.now_ms(), tuple(headers), clock)
                place = TopicPartition(records.topic, partition)
                if transactional_id is not None:
                    transaction = transaction or self._current(transactional_id)
                    self._append(place, log, payload, transaction)
                    continue
                self._waiting.append((place, payload))
                if len(self._waiting) > self._linger_records:
                    self._append_waiting()

    def _choose(self, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of(key, partitions)
        self._keyless_total += 1  # a real client draws lots; taking turns keeps every run the same
        return self._keyless_total % partitions

    def _current(self, transactional_id: str) -> OpenTransaction:
        try:
            return self._broker.transactions.current(transactional_id, self._epoch)
        except ProducerFenced:
            self._in_transaction = False
            self._waiting.clear()
            raise

    def _append_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for place, payload in waiting:
            self._append(place, self._broker.partition(place), payload, None)

    def _append(
        self, place: TopicPartition, log: PartitionLog, payload: Payload, transaction: OpenTransaction | None
    ) -> None:
        if transaction is None:
            offset = log.append(payload, None)
        else:
            offset = log.append(payload, transaction.mark)
            transaction.logs[place] = log
        self._appended[place] = Appended(offset, payload.timestamp_ms)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction. A stale ``member`` aborts it: ``TransactionAborted``."""
        assert self._in_transaction, "begin a transaction first"
        assert self._transactional_id is not None, "offsets belong to a transaction"
        with self._broker.lock:
            self._broker.expire()
            transaction = self._current(self._transactional_id)
            if member is not None:
                try:
                    self._broker.group(group).check(cast(MemoryMembership, member))
                except MembershipLost as lost:
                    self.abort()
                    raise TransactionAborted(
                        f"The transaction was aborted: {lost.message}",
                        action="read the input again from the committed offsets.",
                        group=group,
                        code=lost.fields["code"],
                    ) from lost
            transaction.offsets.setdefault(group, {}).update(offsets)

    def flush(self, timeout_seconds: float = 60.0) -> None:  # noqa: ARG002 - at once
        """Wait until everything sent so far is acknowledged."""
        assert not self._closed, "the writer is closed"
        with self._broker.lock:
            self._broker.expire()
            if self._waiting:
                self._append_waiting()
            if self._in_transaction and self._transactional_id is not None:
                self._broker.transactions.check(self._transactional_id, self._epoch)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:  # noqa: ARG002 - at once
        """Commit, or flush; see the protocol."""
        assert not self._closed, "the writer is closed"
        with self._broker.lock:
            self._broker.expire()
            if self._transactional_id is None:
                self._append_waiting()
            else:
                assert self._in_transaction, "begin a transaction first"
                self._in_transaction = False
                self._broker.transactions.end(self._transactional_id, self._epoch, commit=True)
        appended, self._appended = self._appended, {}
        return appended

    def abort(self) -> None:
        """Abort the open transaction, if any. Raises ``ProducerFenced``."""
        if not self._in_transaction:
            return
        assert self._transactional_id is not None, "only transactions are aborted"
        with self._broker.lock:
            self._broker.expire()
            self._in_transaction = False
            self._appended.clear()
            self._broker.transactions.end(self._transactional_id, self._epoch, commit=False)

    def close(self) -> None:
        """Abort what is open; without transactions, flush."""
        if self._closed:
            return
        if self._transactional_id is None:
            self.commit()
        try:
            self.abort()
        except ProducerFenced:
            self._in_transaction = False  # the successor has aborted it already: nothing is left to do
        self._closed = True

    @property
    def in_transaction(self) -> bool:
        """True between ``begin`` and the end of a transaction."""
        return self._in_transaction

    @property
    def is_transactional(self) -> bool:
        """True with a transactional id."""
        return self._transactional_id is not None

    def late_end_txn(self) -> None:
        """A late EndTxn(commit) of this producer arrives, and ends what is open now, as a broker lets it.

        The client does not hear of it. Raises ``ProducerFenced`` when a newer producer has taken over.
        """
        assert self._transactional_id is not None, "only transactions are ended"
        with self._broker.lock:
            self._broker.transactions.end(self._transactional_id, self._epoch, commit=True)

    def kill(self) -> None:
        """Stop as if by SIGKILL: nothing is flushed, an open transaction stays open until it times out."""
        self._waiting.clear()
        self._closed = True
