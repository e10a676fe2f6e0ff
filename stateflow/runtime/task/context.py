"""The task as its operators see it: stores to read and write, topics to send to, event time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.changelog.barrier_id import barrier_header
from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.changelog.eventual import Eventual, EventualChangelog
from stateflow.changelog.position import Moment
from stateflow.clock import Clock
from stateflow.codec.base import Codec
from stateflow.codec.offset_stamped import log_id
from stateflow.log.base import Writer
from stateflow.native.folds import Folding
from stateflow.operators.steps.marks import mark_headers
from stateflow.record import Headers, TopicPartition
from stateflow.runtime.event_time.out_of_bounds import Kind, OutOfBoundsRecords
from stateflow.runtime.event_time.watermarks import Watermarks
from stateflow.runtime.task.global_tables import TaskTables, TopicEntries
from stateflow.runtime.task.size_limits import SizeLimits
from stateflow.runtime.task.undo import UndoScope
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.state.layout import LENGTH_BYTES, prefix_bytes, prefix_end
from stateflow.store.base import StoreReader, TaskStores
from stateflow.store.decoded import DecodedStore
from stateflow.store.dirty import DirtyStore
from stateflow.store.folded import decoded_in_place_of
from stateflow.store.grouped import GroupedStore

_DEFAULT_PARTITIONER = -1


def dirty_store(entry: StoreEntry | None, reader: StoreReader) -> DirtyStore:
    """What a task works on: keys that begin with the length of their group's key are kept in groups.

    An index has no entry. Nothing is cached until a limit is set.
    """
    if entry is not None and entry.layout == "prefixed":
        return GroupedStore(reader, prefix_bytes, prefix_end, LENGTH_BYTES, read_cache_bytes=0)
    return DirtyStore(reader, read_cache_bytes=0)


class TaskContext:
    """Implements ``operators.context.StageContext`` on a writer and dirty maps.

    Sends go straight into the task's open transaction, so memory stays bounded by the client's own queue; only
    inside ``undoable`` are they held back until the record has succeeded.
    """

    def __init__(
        self,
        wiring: TaskWiring,
        writer: Writer,
        stores: dict[str, DirtyStore],
        watermarks: Watermarks,
        clock: Clock,
        size_limits: SizeLimits,
        tables: TaskTables | None = None,
    ) -> None:
        self._size_limits = size_limits
        self._tables = tables
        self.partition = wiring.partition
        self.clock = clock
        self.stores = stores
        self.counters: Counter[str] = Counter()
        self.out_of_bounds = OutOfBoundsRecords(wiring.id, clock)
        self._closing = ExitStack()
        self.at_close(self.out_of_bounds.close)
        self.host_is_stopping: Callable[[], bool] = lambda: False
        """Asked while a step waits for others; the host sets it."""
        self.records_at_once = 1
        """Fewer records than these should not be processed at a time: they would take as long."""
        self.has_sent = False
        self.sent_total = 0
        """Records sent to outputs and re-key steps."""
        self.part_mark_ms = UNKNOWN_MS
        self.others_ms = UNKNOWN_MS
        self.is_muted = False
        """While input is replayed to compute state again: its outputs and counts were given before."""
        self.eventual_changelogs: dict[str, EventualChangelog] = {}
        self.barrier_id: int | None = None
        """The id of the barrier behind which everything is that is re-keyed now."""
        self._wiring = wiring
        self._ports = {
            source.topic: port.name for source, port in zip(wiring.inputs, wiring.ports, strict=True)
        }
        self._writer = writer
        self._watermarks = watermarks
        self._undo = UndoScope(stores)
        self._part_first = 0
        self._moment: Moment | None = None

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete."""
        return self._watermarks.value_ms

    def mark_ms(self, source: TopicPartition) -> int:
        """Event time up to which one input has come, ``UNKNOWN_MS`` before anything did."""
        return self._watermarks.port_mark_ms(self._wiring.port_of(source))

    @property
    def is_stopping(self) -> bool:
        """True once the host was asked to stop."""
        return self.host_is_stopping()

    def at_close(self, callback: Callable[[], object]) -> None:
        """Call this when the task is closed or abandoned."""
        self._closing.callback(callback)

    def takes_at_once(self, records: int) -> None:
        """A step takes hardly longer for so many records than for one."""
        self.records_at_once = max(self.records_at_once, records)

    def close(self) -> None:
        """End what steps have running beside the task."""
        self._closing.close()

    @property
    def held_bytes(self) -> int:
        """What the changes since the last commit take in memory."""
        return sum([store.held_bytes for store in self.stores.values()])

    def set_replaying(self, *, now: bool) -> None:
        """Whether what eventual changelogs have left out is computed again, and nothing sent."""
        self.is_muted = now
        for changelog in self.eventual_changelogs.values():
            changelog.is_replaying = now

    def limit_cache(self, bytes_max: int) -> None:
        """From now on the read caches of the stores hold at most so much together; indexes have none."""
        names = [store.name for store in self._wiring.stage.stores]
        for name in names:
            self.stores[name].limit_cache(bytes_max // len(names))

    def port(self, topic: str) -> str:
        """The input that a topic is read as; KeyError is a bug in the wiring."""
        return self._ports[topic]

    def store(self, name: str) -> DirtyStore:
        """The stage's own store; KeyError is a bug in the graph."""
        return self.stores[name]

    def decoded_store(self, name: str, codec: Codec[Any], folding: Folding | None = None) -> DecodedStore:
        """The stage's own store, from now on one that keeps values decoded until the commit."""
        decoded = decoded_in_place_of(self.stores[name], codec, folding)
        self.stores[name] = decoded
        return decoded

    def global_entries(self, topic: str, bytes_max: int) -> TopicEntries:
        """A topic read whole, until the task is closed."""
        assert self._tables is not None, (
            "whoever opens a task whose stage looks up a global table gives it some"
        )
        return self._tables.open(topic, bytes_max, self.at_close)

    def eventual(self, store: str, policy: Eventual) -> EventualChangelog:
        """The eventual changelog of a store, in this task's generation."""
        topic_id = self._wiring.topic_ids[self._wiring.changelogs[store].topic]
        changelog = EventualChangelog(policy, log_id(topic_id), self._moment_now)
        self.eventual_changelogs[store] = changelog
        return changelog

    def begin_part(self, offset_first: int) -> None:
        """The next records begin here; event time stands still while they are processed."""
        self._part_first, self._moment = offset_first, None

    def _moment_now(self) -> Moment:
        if self._moment is None:
            self._moment = Moment(self._part_first, self._watermarks.event_time())
        return self._moment

    def entry(self, name: str) -> StoreEntry:
        """The stage's own store of that name as the catalog has it."""
        return self._wiring.entries[name]

    def undoable(self) -> AbstractContextManager[None]:
        """One record's scope: an exception takes back its writes and drops its sends."""
        return self._undo.open()

    def send_many(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int],
        headers: Sequence[Headers] = (),
    ) -> None:
        """Produce to an output topic, partitioned as Kafka's own producers do."""
        self._produce(
            lambda: self._writer.send_many(
                topic,
                keys,
                values,
                partitions=_DEFAULT_PARTITIONER,
                timestamps_ms=timestamps_ms,
                headers=headers,
            ),
            len(keys),
        )

    def record_bytes_max(self, topic: str) -> int:
        """The largest record that may be sent to a topic."""
        return self._size_limits.record_bytes_max(topic)

    def rekey_topic(self, name: str) -> str:
        """The topic of a re-key step in this generation."""
        return self._wiring.rekeys[name].topic

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers = ()
    ) -> None:
        """Produce one record with headers."""
        self._produce(
            lambda: self._writer.send(
                topic,
                key,
                value,
                partition=_DEFAULT_PARTITIONER,
                timestamp_ms=timestamp_ms,
                headers=headers,
            ),
            1,
        )

    def rekey_many(
        self,
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int],
        marks_ms: Sequence[int] | None = None,
        headers: Sequence[Headers] = (),
    ) -> None:
        """Route records by the generation's table into the step's repartition topic."""
        rekey = self._wiring.rekeys[name]
        partitions = rekey.routing.partitions_of(keys)
        all_headers = self._all_headers(timestamps_ms, marks_ms, headers)
        self._produce(
            lambda: self._writer.send_many(
                rekey.topic,
                keys,
                values,
                partitions=partitions,
                timestamps_ms=timestamps_ms,
                headers=all_headers,
            ),
            len(keys),
        )

    def _all_headers(
        self, timestamps_ms: Sequence[int], marks_ms: Sequence[int] | None, headers: Sequence[Headers]
    ) -> Sequence[Headers]:
        """The barrier that records are behind, how far event time had come with them, and what they bring."""
        of_all = () if self.barrier_id is None else barrier_header(self.barrier_id)
        if marks_ms is None:
            if headers:
                return [(*of_all, *brought) for brought in headers] if of_all else headers
            return [of_all] * len(timestamps_ms) if of_all else ()
        marks = mark_headers(marks_ms, timestamps_ms)
        if not headers:
            return [(*of_all, *mark) for mark in marks]
        return [(*of_all, *mark, *brought) for mark, brought in zip(marks, headers, strict=True)]

    def count(self, metric: str, amount: int = 1) -> None:
        """Add to one of the task's counters."""
        if not self.is_muted:
            self.counters[metric] += amount

    def late(self, step: str, source: TopicPartition, offset: int, timestamp_ms: int, mark_ms: int) -> None:
        """Count a record that came too late for a window of ``step``, and warn of it once in a while."""
        self.count("late_records_total")
        if not self.is_muted:
            self.out_of_bounds.note("late", step, source, offset, timestamp_ms, mark_ms)

    def ahead(
        self,
        stream: str,
        source: TopicPartition,
        offset: int,
        timestamp_ms: int,
        reference_ms: int,
        *,
        refused: bool,
    ) -> None:
        """Count a record that is ahead of time, and warn of it once in a while."""
        self.count("ahead_records_total" if refused else "time_jumps_total")
        if not self.is_muted:
            kind: Kind = "ahead" if refused else "jump"
            self.out_of_bounds.note(kind, stream, source, offset, timestamp_ms, reference_ms)

    def begin_once(self) -> None:
        """Open the transaction of this epoch with its first write."""
        if not self.has_sent:
            self._writer.begin()
            self.has_sent = True

    def _produce(self, send: Callable[[], None], records: int) -> None:
        if self.is_muted:
            return

        def begun_send() -> None:  # begun when it is sent: what was held back may be the epoch's first write
            self.begin_once()
            send()
            self.sent_total += records

        self._undo.do(begun_send)


def dirty_stores(wiring: TaskWiring, stores: TaskStores) -> dict[str, DirtyStore]:
    """What a task works on, over its stores and their indexes, which must have been brought up."""
    for index in wiring.indexes:
        assert stores.position(index.family) == index.mark, f"{index.family} was not brought up"
    families = [store.name for store in wiring.stage.stores] + [index.family for index in wiring.indexes]
    return {family: dirty_store(wiring.entries.get(family), stores.reader(family)) for family in families}
