"""Readers that are used again, for whoever reads many short ranges one after the other.

A reader of its own for each range costs a Kafka client three connections and a question for a coordinator, and takes
longer to come about than to read a few thousand records. A reader that is closed here waits for the next one who asks,
without an assignment, so that it fetches nothing meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from stateflow.log.base import Cluster, Reader
from stateflow.log.forwarding import ForwardingCluster
from stateflow.log.newest import Sink, read_newest
from stateflow.record import RecordBatch, TopicPartition


@contextmanager
def kept_readers(cluster: Cluster) -> Iterator[Cluster]:
    """The same cluster, whose readers are kept until the scope ends. Thread-safe; all are closed by then."""
    keeping = _KeepingReaders(cluster)
    try:
        yield keeping
    finally:
        keeping.close_readers()


class _KeepingReaders(ForwardingCluster):
    def __init__(self, inner: Cluster) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._waiting: list[Reader] = []

    def reader(self, *, follows: bool = False) -> Reader:
        """A reader, which may have read something else before. One that follows is a new one."""
        if follows:
            return self.inner.reader(follows=True)
        with self._lock:
            waiting = self._waiting.pop() if self._waiting else None
        return _KeptReader(waiting or self.inner.reader(), self._keep)

    def close_readers(self) -> None:
        """Release the connections of those that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for reader in waiting:
            reader.close()

    def _keep(self, reader: Reader) -> None:
        with self._lock:
            self._waiting.append(reader)


class _KeptReader:
    """Implements :class:`stateflow.log.base.Reader`. One that has met a failure is not used again."""

    def __init__(self, inner: Reader, keep: Callable[[Reader], None]) -> None:
        self._inner = inner
        self._keep = keep
        self._has_failed = False

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        with self._noting_failure():
            self._inner.assign(offsets)

    def read(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Up to ``max_records``."""
        with self._noting_failure():
            return self._inner.read(max_records, timeout_seconds)

    def read_newest(
        self, sinks: Mapping[TopicPartition, Sink], max_records: int, timeout_seconds: float
    ) -> list[TopicPartition]:
        """As ``read``, into the sinks."""
        with self._noting_failure():
            return read_newest(self._inner, sinks, max_records, timeout_seconds)

    def position(self, partition: TopicPartition) -> int:
        """The next offset."""
        return self._inner.position(partition)

    def close(self) -> None:
        """Stop reading, and leave the reader to the next who asks."""
        if self._has_failed:
            self._inner.close()
            return
        try:
            self._inner.assign({})
        except BaseException:
            self._inner.close()
            raise
        self._keep(self._inner)

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._has_failed = True
            raise
