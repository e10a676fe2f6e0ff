"""The writer of a task under at-least-once: outputs at once, changelogs only as long as nobody else owns the task.

Without a fence an owner that hung, was replaced and woke up would write its old values over the newer ones of its
successor: state lost, where at least once allows no more than things done twice. Only a transactional id is refused by
the broker itself, at whatever moment the owner wakes. So what goes to the changelogs is a transaction of its own, and
the rest is sent as it comes.
"""

from __future__ import annotations

from collections.abc import Mapping

from stateflow.log.base import Appended, Cluster, Committed, GroupMetadata, Writer
from stateflow.log.outgoing import Outgoing, Sender
from stateflow.record import TopicPartition


class FencedWriter(Sender):
    """Implements :class:`stateflow.log.base.Writer`. Opening it fences every older one of the id."""

    def __init__(self, cluster: Cluster, transactional_id: str, changelogs: frozenset[str]) -> None:
        self._changelogs = changelogs
        self._outputs = cluster.writer()
        try:
            self._state = cluster.writer(transactional_id)
        except BaseException:
            self._outputs.close()
            raise

    def begin(self) -> None:
        """Begin the changelogs' transaction."""
        self._outputs.begin()
        self._state.begin()

    def append(self, records: Outgoing) -> None:
        """Queue records of one topic, in order."""
        writer = self._state if records.topic in self._changelogs else self._outputs
        writer.append(records)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add input offsets to the changelogs' transaction; at least once commits them afterwards instead."""
        self._state.send_offsets(offsets, group, member)

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait until everything sent so far is acknowledged."""
        self._outputs.flush(timeout_seconds)
        self._state.flush(timeout_seconds)

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Wait for the outputs, then commit the changelogs: state is never ahead of what came of it."""
        appended = self._outputs.commit(timeout_seconds)
        return {**appended, **self._state.commit(timeout_seconds)}

    def abort(self) -> None:
        """Abort the changelogs' transaction; outputs that were sent stay sent."""
        self._state.abort()

    def close(self) -> None:
        """Abort what is open and release both connections."""
        try:
            self._state.close()
        finally:
            self._outputs.close()


def writer_of_id(
    cluster: Cluster, transactional_id: str, changelogs: frozenset[str], *, is_exact: bool
) -> Writer:
    """A writer by a transactional id, as the guarantee wants it. Opening it fences every older one of the id."""
    if is_exact:
        return cluster.writer(transactional_id)
    return FencedWriter(cluster, transactional_id, changelogs)
