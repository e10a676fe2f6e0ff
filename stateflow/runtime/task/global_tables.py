"""Topics that a worker reads whole, for all of its tasks: the newest value of each key, in memory, within a bound."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from stateflow.clock import Clock
from stateflow.errors import GlobalTableTooLarge, Interrupted, TopicMissing
from stateflow.log.base import Cluster, Reader
from stateflow.log.reading import READ_RECORDS_MAX, read_to_end
from stateflow.memory import ENTRY_BYTES
from stateflow.record import RecordBatch, TopicPartition

_LOG = logging.getLogger(__name__)
_MEGABYTE = 1 << 20


class TopicEntries:
    """Implements ``operators.context.GlobalEntries``: a topic as far as it was read. Thread-safe."""

    def __init__(self, topic: str, bytes_max: int, reader: Reader) -> None:
        self._topic = topic
        self.bytes_max = bytes_max
        self._reader = reader
        self._lock = threading.Lock()
        self._entries: dict[bytes, bytes] = {}
        self.held_bytes = 0
        """What the entries take in memory, about."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> bytes | None:
        """The newest value of a key."""
        return self._entries.get(key)

    def catch_up(self) -> None:
        """Take in what has arrived, a bounded number of records; waits for nothing."""
        with self._lock:
            self.take(self._reader.read(READ_RECORDS_MAX, 0.0))

    def take(self, batches: Iterable[RecordBatch]) -> None:
        """Take in records; those without a key say nothing. Raises ``GlobalTableTooLarge``."""
        for batch in batches:
            for key, value in zip(batch.keys, batch.values, strict=True):
                if key is not None:
                    self._put(key, value)
            if self.held_bytes > self.bytes_max:
                raise self._too_large()

    def close(self) -> None:
        """Read no further."""
        with self._lock:
            self._reader.close()

    def _put(self, key: bytes, value: bytes | None) -> None:
        before = self._entries.get(key)
        if before is not None:
            self.held_bytes -= len(key) + len(before) + ENTRY_BYTES
        if value is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = value
            self.held_bytes += len(key) + len(value) + ENTRY_BYTES

    def _too_large(self) -> GlobalTableTooLarge:
        return GlobalTableTooLarge(
            f"the global table of {self._topic} takes more than {self.bytes_max:,} bytes of memory:"
            f" {len(self._entries)} keys so far.",
            action="give app.global_table(…) a larger bytes_max=, which each worker needs; or use app.table(…), which"
            " is divided among the workers and kept on disk.",
            topic=self._topic,
            bytes_max=self.bytes_max,
            keys=len(self._entries),
        )


class GlobalTables:
    """The global tables of one worker, each kept as long as one of its tasks has it. Thread-safe."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}

    def lease(self, topic: str, bytes_max: int, cancelled: Callable[[], bool]) -> TopicEntries:
        """The entries of a topic, all that it has now read; ``release`` must follow.

        Raises ``Interrupted`` soon after ``cancelled`` turns true, ``TopicMissing``, ``GlobalTableTooLarge``, and what
        ``read_to_end`` raises.
        """
        with self._lock:
            held = self._held.setdefault(topic, _Held())
            held.leases += 1
        try:
            with held.loading:
                if held.entries is None:
                    held.entries = self._loaded(topic, bytes_max, cancelled)
                assert held.entries.bytes_max == bytes_max, "a graph gives all tables of a topic one bound"
                return held.entries
        except BaseException:
            self.release(topic)
            raise

    def release(self, topic: str) -> None:
        """A task needs it no longer."""
        with self._lock:
            held = self._held[topic]
            held.leases -= 1
            if held.leases:
                return
            del self._held[topic]
        if held.entries is not None:
            held.entries.close()

    def _loaded(self, topic: str, bytes_max: int, cancelled: Callable[[], bool]) -> TopicEntries:
        info = self._cluster.describe([topic]).get(topic)
        if info is None:
            raise TopicMissing(
                f"the topic {topic} of a global table does not exist.", action="create it.", topic=topic
            )
        began_seconds = self._clock.monotonic_seconds()
        ranges = self._cluster.ranges(TopicPartition(topic, number) for number in range(info.partitions))
        follower = self._cluster.reader(follows=True)
        try:
            entries = TopicEntries(topic, bytes_max, follower)
            for batch in read_to_end(self._cluster, ranges):
                if cancelled():
                    raise Interrupted(f"reading the global table of {topic} was stopped.", action="nothing.")
                entries.take([batch])
            follower.assign({source: offsets.offset_next for source, offsets in ranges.items()})
        except BaseException:
            follower.close()
            raise
        _LOG.info(
            "The global table of %s: %d keys, %.1f of %.1f MB, read in %.1f s.",
            topic,
            len(entries),
            entries.held_bytes / _MEGABYTE,
            bytes_max / _MEGABYTE,
            self._clock.monotonic_seconds() - began_seconds,
        )
        return entries


class _Held:
    def __init__(self) -> None:
        self.loading = threading.Lock()
        self.entries: TopicEntries | None = None
        self.leases = 0


class TaskTables:
    """The worker's global tables as one task opens them."""

    def __init__(self, tables: GlobalTables, cancelled: Callable[[], bool]) -> None:
        self._tables = tables
        self._cancelled = cancelled

    def open(
        self, topic: str, bytes_max: int, at_close: Callable[[Callable[[], object]], None]
    ) -> TopicEntries:
        """The entries of a topic, until the task is closed."""
        entries = self._tables.lease(topic, bytes_max, self._cancelled)
        at_close(lambda: self._tables.release(topic))
        return entries
