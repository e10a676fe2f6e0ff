"""The transaction coordinator of the memory log: ids, fencing, the fate of a transaction, its timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from stateflow.clock import Clock
from stateflow.errors import ProducerFenced
from stateflow.log.base import Committed
from stateflow.log.memory.partition import PartitionLog, TransactionMark
from stateflow.log.transactions import LastTransaction, LeftOpen, Outcome
from stateflow.record import TopicPartition


@dataclass(slots=True, eq=False)
class OpenTransaction:
    """What an open transaction has touched so far."""

    started_ms: int
    mark: TransactionMark = field(default_factory=TransactionMark)
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)


@dataclass(slots=True)
class _Producer:
    epoch: int = 0
    open: OpenTransaction | None = None
    outcome: Outcome = "none"
    left_open: dict[TopicPartition, tuple[PartitionLog, TransactionMark]] = field(default_factory=dict)
    """What ended transactions have open where there was no leader to write their marker."""
    left_offsets: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)


class TransactionCoordinator:
    """One producer per transactional id: the newest. The cluster's lock is held around every call."""

    def __init__(
        self,
        clock: Clock,
        timeout_ms: int,
        commit_offsets: Callable[[str, Mapping[TopicPartition, Committed]], None],
    ) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._commit_offsets = commit_offsets
        self._producers: dict[str, _Producer] = {}
        self.leaderless: set[TopicPartition | str] = set()
        """Partitions, and groups, into whose logs no marker gets now: Kafka 4.1 to 4.3 leave it out (KAFKA-20734)."""

    def register(self, transactional_id: str) -> int:
        """Fence every older producer of the id, abort what it had open, and return the new epoch."""
        producer = self._producers.setdefault(transactional_id, _Producer())
        self._end(producer, commit=False)
        producer.epoch += 1
        producer.outcome = "none"
        return producer.epoch

    def current(self, transactional_id: str, epoch: int) -> OpenTransaction:
        """The producer's open transaction, begun now if there is none. Raises ``ProducerFenced``."""
        producer = self._checked(transactional_id, epoch)
        if producer.open is None:
            producer.open = OpenTransaction(self._clock.now_ms())
        return producer.open

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort what the producer has open. Raises ``ProducerFenced``."""
        self._end(self._checked(transactional_id, epoch), commit=commit)

    def check(self, transactional_id: str, epoch: int) -> None:
        """Raise ``ProducerFenced`` when a newer producer of the id exists, or the transaction timed out."""
        self._checked(transactional_id, epoch)

    def expire(self) -> None:
        """Abort transactions older than the timeout, and fence their producers, as a broker does."""
        for producer in self._producers.values():
            if producer.open and self._clock.now_ms() - producer.open.started_ms >= self._timeout_ms:
                self._end(producer, commit=False)
                producer.epoch += 1

    def forget(self, topic: str) -> None:
        """A deleted topic takes part in no transaction any more."""
        for producer in self._producers.values():
            if producer.open is not None:
                for touched in [partition for partition in producer.open.logs if partition.topic == topic]:
                    del producer.open.logs[touched]
            for left in [partition for partition in producer.left_open if partition.topic == topic]:
                del producer.left_open[left]

    def pending(self, group: str) -> set[TopicPartition]:
        """Partitions whose offsets of this group are held by an open transaction."""
        held: set[TopicPartition] = set()
        for producer in self._producers.values():
            held.update(producer.left_offsets.get(group, ()))
            if producer.open is not None:
                held.update(producer.open.offsets.get(group, ()))
        return held

    def last(self, transactional_id: str) -> LastTransaction:
        """What the newest owner of the id did last."""
        producer = self._producers.get(transactional_id, _Producer())
        if producer.open is not None:
            return LastTransaction("open", frozenset(producer.open.logs), bool(producer.open.offsets))
        return LastTransaction(producer.outcome)

    def left_open(self, transactional_id: str) -> frozenset[TopicPartition]:
        """Where transactions of the id that have ended are open."""
        producer = self._producers.get(transactional_id)
        return frozenset(producer.left_open) if producer is not None else frozenset()

    def mark(
        self,
        transactional_id: str,
        logs: Mapping[TopicPartition, PartitionLog],
        group: str | None,
        *,
        commit: bool,
    ) -> None:
        """End a transaction without records that has touched these logs, and offsets of the group."""
        epoch = self.register(transactional_id)
        transaction = self.current(transactional_id, epoch)
        transaction.logs.update(logs)
        if group is not None:
            transaction.offsets[group] = {}
        self.end(transactional_id, epoch, commit=commit)

    def _checked(self, transactional_id: str, epoch: int) -> _Producer:
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise ProducerFenced(
                f"The producer {transactional_id!r} was fenced: a newer one took its place, or its"
                " transaction ran past its timeout.",
                action="stop this instance; the newer one goes on from the last commit.",
                transactional_id=transactional_id,
            )
        return producer

    def _end(self, producer: _Producer, *, commit: bool) -> None:
        ended, producer.open = producer.open, None
        if ended is None:
            return
        ended.mark.state = producer.outcome = "committed" if commit else "aborted"
        for partition, log in ended.logs.items():
            if partition in self.leaderless:
                producer.left_open.setdefault(partition, (log, TransactionMark()))
                log.leave_open(ended.mark, producer.left_open[partition][1])
                continue
            _, left = producer.left_open.pop(partition, (log, None))
            log.end_transaction(ended.mark, left)
        for group, offsets in ended.offsets.items():
            held = producer.left_offsets.pop(group, {}) | offsets
            if group in self.leaderless:
                producer.left_offsets[group] = held
            elif commit:
                self._commit_offsets(group, held)


class MemoryTransactions:
    """Implements :class:`stateflow.log.transactions.Transactions`."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        lock: AbstractContextManager[object],
        log_of: Callable[[TopicPartition], PartitionLog],
    ) -> None:
        self._coordinator = coordinator
        self._lock = lock
        self._log_of = log_of

    def last(self, transactional_id: str) -> LastTransaction:
        """What the id's newest owner did last."""
        with self._lock:
            return self._coordinator.last(transactional_id)

    def left_open(self, transactional_ids: Iterable[str], partitions: Iterable[TopicPartition]) -> LeftOpen:
        """Where the ids' ended transactions are still open."""
        wanted = frozenset(partitions)
        with self._lock:
            found = {name: self._coordinator.left_open(name) & wanted for name in transactional_ids}
        return LeftOpen({name: where for name, where in found.items() if where})

    def end(
        self, transactional_id: str, partitions: Iterable[TopicPartition], group: str | None, *, commit: bool
    ) -> None:
        """Write a marker of the id into these partitions, and for its offsets of ``group``."""
        with self._lock:
            logs = {partition: self._log_of(partition) for partition in partitions}
            self._coordinator.mark(transactional_id, logs, group, commit=commit)
