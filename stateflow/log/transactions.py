"""What can be learnt of a transactional id's transactions from outside, and ended there.

A transaction may be over for its coordinator and still be open in a partition: Kafka 4.1 to 4.3 write no marker where
there is no leader at that moment (KAFKA-20734). What is open there is ended by the next marker of the same producer,
whatever that says; ``runtime.opening.hanging_transactions`` sees to it that it says the right thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from stateflow.record import TopicPartition

Outcome = Literal["none", "open", "committed", "aborted"]


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """The newest transaction of a transactional id, as its coordinator knows it."""

    outcome: Outcome
    """"none" where the newest owner has not begun one."""
    partitions: frozenset[TopicPartition] = frozenset()
    """Where an open one has records, as far as one may see the topics."""
    has_offsets: bool | None = None
    """Whether offsets of a group are part of an open one; None where that cannot be seen."""


@dataclass(frozen=True, slots=True)
class LeftOpen:
    """Partitions in which a transaction is open that its coordinator has ended."""

    by_id: Mapping[str, frozenset[TopicPartition]]
    """Transactional id → where its own records are open; ids without any are left out."""
    untold: frozenset[TopicPartition] = frozenset()
    """Partitions that nobody would tell of: one may not read them."""


class Transactions(Protocol):
    """Looks at transactions by their ids. Thread-safe."""

    def last(self, transactional_id: str) -> LastTransaction | None:
        """What the id's newest owner did last. None where this cluster cannot be asked with these settings."""
        ...

    def left_open(
        self, transactional_ids: Iterable[str], partitions: Iterable[TopicPartition]
    ) -> LeftOpen | None:
        """Where the ids' ended transactions are still open; to be asked by whoever has just fenced them.

        None where this cluster cannot be asked with these settings.
        """
        ...

    def end(
        self, transactional_id: str, partitions: Iterable[TopicPartition], group: str | None, *, commit: bool
    ) -> None:
        """Write a marker of the id into these partitions, and for its offsets of ``group``, without any record.

        Everything of the id that is open there is committed or aborted by it. Fences every writer of the id.
        """
        ...
