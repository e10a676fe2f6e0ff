"""A writer and a cluster that pass every call on to another: the bases of those that add something to one.

A subclass overrides what it changes. Calls go to ``self.inner`` as it is at that moment, so that it may be exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stateflow.log.base import (
    Appended,
    AssignedMember,
    Cluster,
    Committed,
    GroupConsumer,
    GroupListener,
    GroupMetadata,
    Reader,
    TopicInfo,
    TopicSpec,
    Writer,
)
from stateflow.log.outgoing import Outgoing, Sender
from stateflow.log.transactions import Transactions
from stateflow.record import OffsetRange, TopicPartition


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


class ForwardingCluster:
    """Implements :class:`stateflow.log.base.Cluster` by another one, ``inner``."""

    def __init__(self, inner: Cluster) -> None:
        self.inner = inner

    @property
    def cluster_id(self) -> str:
        """The cluster's own id."""
        return self.inner.cluster_id

    @property
    def transactions(self) -> Transactions:
        """Transactions as others than their writers see them."""
        return self.inner.transactions

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics that exist, of those asked for."""
        return self.inner.describe(topics)

    def list_topics(self) -> list[str]:
        """Names of all topics."""
        return self.inner.list_topics()

    def create(self, topics: Iterable[TopicSpec]) -> dict[str, TopicInfo]:
        """Create topics."""
        return self.inner.create(topics)

    def check_create(self, topics: Iterable[TopicSpec]) -> None:
        """Whether they could be created."""
        self.inner.check_create(topics)

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics."""
        self.inner.delete(topics)

    def topic_config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        return self.inner.topic_config(topic)

    def record_bytes_max(self, topic: str) -> int:
        """The largest record that may be written to a topic."""
        return self.inner.record_bytes_max(topic)

    def fit_batches(self, topics: Iterable[str]) -> None:
        """Let writers send no more at a time than these topics take."""
        self.inner.fit_batches(topics)

    def alter_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set topic settings."""
        self.inner.alter_topic_config(topic, changes)

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop everything before these offsets."""
        self.inner.trim(offsets)

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        """Log start and last stable offset, or end of the log, of each partition."""
        return self.inner.ranges(partitions, stable=stable)

    def ends(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        """Last stable offset, or end of the log, of each partition."""
        return self.inner.ends(partitions, stable=stable)

    def holds_record(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record stands at this offset, of whatever transaction."""
        return self.inner.holds_record(partition, offset)

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        stable: bool = True,
        pending_seconds: float | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets of a group."""
        return self.inner.committed(group, partitions, stable=stable, pending_seconds=pending_seconds)

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Set a group's offsets from outside."""
        self.inner.commit(group, offsets)

    def group_members(self, group: str) -> list[str]:
        """Ids of the members of a group."""
        return self.inner.group_members(group)

    def group_assignments(self, group: str) -> list[AssignedMember]:
        """The members of a group, and what is assigned to each."""
        return self.inner.group_assignments(group)

    def reader(self, *, follows: bool = False) -> Reader:
        """A new reader."""
        return self.inner.reader(follows=follows)

    def writer(self, transactional_id: str | None = None) -> Writer:
        """A new writer."""
        return self.inner.writer(transactional_id)

    def fence(self, transactional_id: str) -> None:
        """Fence every writer of an id."""
        self.inner.fence(transactional_id)

    def group_consumer(
        self,
        group: str,
        topics: Sequence[str],
        listener: GroupListener,
        *,
        member: str | None = None,
        independent: bool = False,
    ) -> GroupConsumer:
        """Join a group."""
        return self.inner.group_consumer(group, topics, listener, member=member, independent=independent)

    def close(self) -> None:
        """Release the admin connection."""
        self.inner.close()
