"""A writer that passes every call on to another: the base of writers that add something to one.

A subclass overrides what it changes. Calls go to ``self.inner`` as it is at that moment, so that it may be exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stateflow.log.base import Appended, Committed, GroupMetadata, Writer
from stateflow.record import Headers, TopicPartition


class ForwardingWriter:
    """Implements :class:`stateflow.log.base.Writer` by another one, ``inner``."""

    def __init__(self, inner: Writer) -> None:
        self.inner = inner

    def begin(self) -> None:
        """Begin a transaction."""
        self.inner.begin()

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
        """Queue one record."""
        self.inner.send(topic, key, value, partition=partition, timestamp_ms=timestamp_ms, headers=headers)

    def send_many(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        *,
        partitions: Sequence[int] | int,
        timestamps_ms: Sequence[int] | int | None = None,
    ) -> None:
        """Queue many records, in order."""
        self.inner.send_many(topic, keys, values, partitions=partitions, timestamps_ms=timestamps_ms)

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
