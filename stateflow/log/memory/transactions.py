"""The transaction coordinator of the memory log: ids, fencing, the fate of a transaction, its timeout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stateflow.clock import Clock
from stateflow.errors import ProducerFenced
from stateflow.log.base import Committed
from stateflow.log.memory.partition import PartitionLog, TransactionMark
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

    def register(self, transactional_id: str) -> int:
        """Fence every older producer of the id, abort what it had open, and return the new epoch."""
        producer = self._producers.setdefault(transactional_id, _Producer())
        self._end(producer, commit=False)
        producer.epoch += 1
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

    def pending(self, group: str) -> set[TopicPartition]:
        """Partitions whose offsets of this group are held by an open transaction."""
        return {
            partition
            for producer in self._producers.values()
            if producer.open is not None
            for partition in producer.open.offsets.get(group, ())
        }

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
        ended.mark.state = "committed" if commit else "aborted"
        for log in ended.logs.values():
            log.end_transaction(ended.mark)
        if commit:
            for group, offsets in ended.offsets.items():
                self._commit_offsets(group, offsets)
