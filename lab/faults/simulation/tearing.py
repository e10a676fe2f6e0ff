"""A late EndTxn: one request commits what a writer's transaction holds at the moment it arrives.

As on a real broker, what the writer sends afterwards to a partition that was cut is refused, and to another partition
it opens a transaction anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from stateflow.errors import ProducerFenced, TransactionAborted
from stateflow.lab.faults.simulation.processes import Killed, Process
from stateflow.log.base import Appended, Committed, GroupMetadata
from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.memory import DelayedWriter, MemoryWriter
from stateflow.log.outgoing import Outgoing
from stateflow.record import TopicPartition

LATE_END_TXN = "late EndTxn"
_SHARED = "-writer-"
_REKEYED = "-repartition"


class Tear:
    """One late EndTxn, before the ``call``-th call that meets an open transaction; later the process dies."""

    def __init__(self, call: int, dies_after_calls: int) -> None:
        self._waits = call
        self._dies_after_calls = dies_after_calls
        self.cut: set[TopicPartition] = set()
        self.happened = False

    def before_call(self, process: Process, writer: MemoryWriter, touched: set[TopicPartition]) -> None:
        """Let it arrive if it is time."""
        if self.happened:
            self._dies_after_calls -= 1
        elif touched:
            self._waits -= 1
            if self._waits <= 0:
                self._arrive(process, writer, touched)
        if self.happened and self._dies_after_calls <= 0 and not process.dead:
            process.dead = True
            process.notes.struck("kill", "after a late EndTxn", f"{process.name}: killed after a late EndTxn")
            raise Killed("after a late EndTxn")

    def _arrive(self, process: Process, writer: MemoryWriter, touched: set[TopicPartition]) -> None:
        self.happened = True
        try:
            writer.late_end_txn()
        except ProducerFenced:  # a successor has a new epoch: the request means nothing any more
            return
        self.cut = set(touched)
        process.notes.struck(
            LATE_END_TXN, "commit", f"{process.name}: a late EndTxn commits {_names(touched)}"
        )
        process.on_torn()


class Network(Protocol):
    """What lies between one writer and its broker."""

    @property
    def cut(self) -> set[TopicPartition]:
        """Partitions whose part of the open transaction was ended by a late request. The writer clears it."""

    def before_call(self, writer: MemoryWriter, touched: set[TopicPartition]) -> None:
        """A step of a transaction that has written to ``touched``; a late request may arrive before it."""


class TornWriter(ForwardingWriter):
    """A writer of the memory log that lives on a torn network."""

    def __init__(self, real: MemoryWriter, network: Network) -> None:
        super().__init__(real)
        self._real = real
        self._network = network
        self._touched: set[TopicPartition] = set()
        self._refused = False
        self._commits_total = 0

    @property
    def in_transaction(self) -> bool:
        """True between ``begin`` and the end of a transaction."""
        return self._real.in_transaction

    def begin(self) -> None:
        """Begin a transaction."""
        self._touched.clear()
        self._network.cut.clear()
        super().begin()

    def append(self, records: Outgoing) -> None:
        """Queue records one by one, or lose what goes to a partition that was cut."""
        for key, value, partition, timestamp_ms, headers in records.rows():
            self._meet()
            target = TopicPartition(records.topic, partition)
            self._refused = self._refused or target in self._network.cut
            if self._refused:
                continue
            self._touched.add(target)
            self.inner.send(
                records.topic, key, value, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait for acknowledgements: here a client hears of refused records."""
        self._meet()
        self._fail_if_refused()
        super().flush(timeout_seconds)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets."""
        self._meet()
        self._fail_if_refused()
        super().send_offsets(offsets, group, member)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit."""
        self._meet()
        self._fail_if_refused()
        appended = super().commit(timeout_seconds)
        self._commits_total += 1
        return appended

    def _meet(self) -> None:
        """Not in the first transaction of a producer: no request of an earlier one can be late."""
        if self._commits_total:
            self._network.before_call(self._real, self._touched)

    def _fail_if_refused(self) -> None:
        if self._refused:
            self._real.abort()
            raise TransactionAborted("the leader knows of no such transaction.", action="read again.")


class _ProcessNetwork:
    """The network of one writer of a process, torn by the process's tear when it has one."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def cut(self) -> set[TopicPartition]:
        """What the tear has cut."""
        return self._process.tear.cut if self._process.tear is not None else set()

    def before_call(self, writer: MemoryWriter, touched: set[TopicPartition]) -> None:
        """Tear if it is time."""
        if self._process.tear is not None:
            self._process.tear.before_call(self._process, writer, touched)


class _SharedNetwork(_ProcessNetwork):
    """The network of a writer that stages share. A task without state has no commit record to tell by what of its
    outputs is orphaned, so a request is not late while there are any."""

    def before_call(self, writer: MemoryWriter, touched: set[TopicPartition]) -> None:
        """Tear if it is time."""
        if not any(_REKEYED in partition.topic for partition in touched):
            super().before_call(writer, touched)


def _names(partitions: set[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def torn(real: Any, process: Process, transactional_id: str | None, stage: str) -> Any:
    """The writer as the process sees it: on a torn network where it writes for the stage that keeps state."""
    if not process.tears or transactional_id is None:
        return real
    if _SHARED in transactional_id:
        network: Network = _SharedNetwork(process)
    elif f"-{stage}-" in transactional_id:
        network = _ProcessNetwork(process)
    else:
        return real
    if isinstance(real, DelayedWriter):  # a late request finds what has arrived, not what was sent
        real.inner = TornWriter(real.real, network)
        return real
    return TornWriter(real, network)
