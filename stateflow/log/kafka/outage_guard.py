"""A transactional writer that is not used on after a commit in which brokers may have been away.

Kafka 4.1 to 4.3 may have left out a marker of such a commit (KAFKA-20734). The next commit would make up for it; an
abort, by whomever, would abort what was committed. So nothing more is sent: the transaction that comes next fails, and
its owner opens the task again, which ends what was left open (``runtime.opening.hanging_transactions``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from stateflow.clock import Clock
from stateflow.errors import TransactionAborted
from stateflow.log.base import Appended, Committed, GroupMetadata, Writer
from stateflow.log.forwarding import ForwardingWriter
from stateflow.record import TopicPartition

SLOW_SECONDS = 2.5
"""A broker is taken for dead only after ``broker.session.timeout.ms``, 9 s unless somebody has set it.

Everything else of a commit is acknowledged before its end is asked for, so whoever asks a broker that goes away in that
moment waits for as long as it is away.
"""


class OutageGuard(ForwardingWriter):
    """Implements :class:`stateflow.log.base.Writer` on another one that is transactional."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        super().__init__(writer)
        self._clock = clock
        self._slowest_seconds = 0.0

    def begin(self) -> None:
        """Begin a transaction. Raises ``TransactionAborted`` when the last commit has waited for brokers."""
        if self._slowest_seconds > SLOW_SECONDS:
            raise TransactionAborted(
                f"Brokers left a commit without an answer for {self._slowest_seconds:.1f} s; nothing more is sent"
                " before it is known that the commit has reached every partition.",
                action="open the task again; a new owner looks after it.",
                passing=True,
            )
        super().begin()

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction."""
        with self._timed():
            super().send_offsets(offsets, group, member)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit the transaction. How long its records take says nothing: they have reached a leader then."""
        super().flush(timeout_seconds)
        with self._timed():
            return super().commit(timeout_seconds)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began_seconds = self._clock.monotonic_seconds()
        yield
        seconds = self._clock.monotonic_seconds() - began_seconds
        self._slowest_seconds = max(self._slowest_seconds, seconds)
