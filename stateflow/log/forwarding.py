"""A writer that passes every call on to another: the base of writers that add something to one.

A subclass overrides what it changes. Calls go to ``self.inner`` as it is at that moment, so that it may be exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateflow.log.base import Appended, Committed, GroupMetadata, Writer
from stateflow.log.outgoing import Outgoing, Sender
from stateflow.record import TopicPartition


class ForwardingWriter(Sender):
    """Implements :class:`stateflow.log.base.Writer` by another one, ``inner``."""

    def __init__(self, inner: Writer) -> None:
        self.inner = inner

    def begin(self) -> None:
        """Begin a transaction."""
        self.inner.begin()

    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order."""
        self.inner.append(records)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the transaction."""
        self.inner.send_offsets(offsets, group, member)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait until everything sent so far is acknowledged."""
        self.inner.flush(timeout_seconds)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit the transaction."""
        return self.inner.commit(timeout_seconds)

    def abort(self) -> None:
        """Abort the open transaction, if any."""
        self.inner.abort()

    def close(self) -> None:
        """Abort what is open and release the connection."""
        self.inner.close()
