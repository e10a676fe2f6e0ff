"""One stage in this process without a task around it: real stores and dirty maps, outputs kept in lists."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NamedTuple

from stateflow.catalog.model import StoreEntry
from stateflow.changelog.event_time import NO_EVENT_TIME, UNKNOWN_MS
from stateflow.changelog.eventual import Eventual, EventualChangelog
from stateflow.changelog.position import Moment
from stateflow.clock import ManualClock
from stateflow.codec.base import Codec
from stateflow.codec.offset_stamped import log_id
from stateflow.native.folds import Folding
from stateflow.operators.steps.context import GlobalEntries, Pipeline
from stateflow.operators.steps.marks import NO_OTHERS_MS, mark_headers
from stateflow.operators.topology.topology import Stage
from stateflow.record import Headers, RecordBatch, TopicPartition
from stateflow.runtime.task.context import dirty_store
from stateflow.runtime.task.undo import UndoScope
from stateflow.state.index import bring_up
from stateflow.store.base import StorePosition
from stateflow.store.decoded import DecodedStore
from stateflow.store.dirty import DEFAULT_READ_CACHE_BYTES, DirtyStore
from stateflow.store.folded import decoded_in_place_of
from stateflow.store.memory import MemoryTaskStores


class Sent(NamedTuple):
    """A record that the stage produced or re-keyed."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


class MemoryContext:
    """Implements ``operators.context.StageContext``. ``sent`` and ``rekeyed`` are by topic and by step."""

    def __init__(self, stage: Stage, stores: MemoryTaskStores | None = None, partition: int = 0) -> None:
        names = [store.name for store in stage.stores]
        self.entries = {store.name: store for store in stage.stores}
        """The stores as the catalog would have them."""
        self.partition = partition
        self._inputs = [port.name for port in stage.inputs]
        self.clock = ManualClock()
        self.watermark_ms = -1
        self.part_mark_ms = UNKNOWN_MS
        self.others_ms = NO_OTHERS_MS
        self.committed = stores or MemoryTaskStores(names, self.clock)
        self.indexes = [index(self.entries[name]) for name, index in stage.indexes.items()]
        for index in self.indexes:
            bring_up(self.committed, index, lambda: False)
        families = [*names, *(index.family for index in self.indexes)]
        self.stores: dict[str, DirtyStore] = {
            name: dirty_store(self.entries.get(name), self.committed.reader(name)) for name in families
        }
        for store in self.stores.values():
            store.limit_cache(DEFAULT_READ_CACHE_BYTES)
        self.bytes_max: dict[str, int] = {}
        """Topic → the largest record that it takes."""
        self.global_tables: dict[str, GlobalEntries] = {}
        """Topic → its newest values, as a worker would have read them."""
        self.sent: dict[str, list[Sent]] = {}
        self.rekeyed: dict[str, list[Sent]] = {}
        self.counters: Counter[str] = Counter()
        self.late_records: list[tuple[str, TopicPartition, int, int, int]] = []
        self.offset_first = 0
        self.is_stopping = False
        self.records_at_once = 1
        self.closing = ExitStack()
        """What a task would close with itself."""
        self._undo = UndoScope(self.stores)

    def at_close(self, callback: Callable[[], object]) -> None:
        """Keep it for ``closing``."""
        self.closing.callback(callback)

    def takes_at_once(self, records: int) -> None:
        """Keep the largest."""
        self.records_at_once = max(self.records_at_once, records)

    def port(self, topic: str) -> str:
        """The stage's own input of that name; any other topic is that of its first input."""
        return topic if topic in self._inputs else self._inputs[0]

    def store(self, name: str) -> DirtyStore:
        """The stage's own store; KeyError for another."""
        return self.stores[name]

    def decoded_store(self, name: str, codec: Codec[Any], folding: Folding | None = None) -> DecodedStore:
        """The stage's own store, from now on one that keeps values decoded until the commit."""
        decoded = decoded_in_place_of(self.stores[name], codec, folding)
        self.stores[name] = decoded
        return decoded

    def eventual(self, store: str, policy: Eventual) -> EventualChangelog:
        """An eventual changelog of a log that nobody writes."""
        return EventualChangelog(policy, log_id(store), lambda: Moment(self.offset_first, NO_EVENT_TIME))

    def global_entries(self, topic: str, bytes_max: int) -> GlobalEntries:  # noqa: ARG002 - tests say what it holds
        """What a test has put there."""
        return self.global_tables[topic]

    def entry(self, name: str) -> StoreEntry:
        """The stage's own store of that name."""
        return self.entries[name]

    def undoable(self) -> AbstractContextManager[None]:
        """One record's scope."""
        return self._undo.open()

    def send_many(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int],
        headers: Sequence[Headers] = (),
    ) -> None:
        """Keep records of an output topic."""
        columns = zip(keys, values, timestamps_ms, headers or [()] * len(keys), strict=True)
        rows = [Sent(*row) for row in columns]
        self._undo.do(lambda: self.sent.setdefault(topic, []).extend(rows))

    def record_bytes_max(self, topic: str) -> int:
        """What a test says that a topic takes; anything otherwise."""
        return self.bytes_max.get(topic, sys.maxsize)

    def rekey_topic(self, name: str) -> str:
        """The re-key step's own name."""
        return name

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers = ()
    ) -> None:
        """Keep one record."""
        self._undo.do(lambda: self.sent.setdefault(topic, []).append(Sent(key, value, timestamp_ms, headers)))

    def rekey_many(
        self,
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int],
        marks_ms: Sequence[int] | None = None,
        headers: Sequence[Headers] = (),
    ) -> None:
        """Keep records of a re-key step."""
        marks = mark_headers(timestamps_ms if marks_ms is None else marks_ms, timestamps_ms)
        pairs = zip(marks, headers or [()] * len(keys), strict=True)
        all_headers = [(*mark, *brought) for mark, brought in pairs]
        rows = [Sent(*row) for row in zip(keys, values, timestamps_ms, all_headers, strict=True)]
        self._undo.do(lambda: self.rekeyed.setdefault(name, []).extend(rows))

    def count(self, metric: str, amount: int = 1) -> None:
        """Add to a counter."""
        self.counters[metric] += amount

    def late(self, step: str, source: TopicPartition, offset: int, timestamp_ms: int, mark_ms: int) -> None:
        """Count a late record, and keep what was said of it."""
        self.counters["late_records_total"] += 1
        self.late_records.append((step, source, offset, timestamp_ms, mark_ms))

    def ahead(
        self,
        stream: str,  # noqa: ARG002 - counted only
        source: TopicPartition,  # noqa: ARG002
        offset: int,  # noqa: ARG002
        timestamp_ms: int,  # noqa: ARG002
        reference_ms: int,  # noqa: ARG002
        *,
        refused: bool,
    ) -> None:
        """Count a record that is ahead of time."""
        self.counters["ahead_records_total" if refused else "time_jumps_total"] += 1


class StageBench:
    """A stage on a ``MemoryContext``: feed it, move event time, commit, start it again."""

    def __init__(self, stage: Stage, stores: MemoryTaskStores | None = None, watermark_ms: int = -1) -> None:
        self.stage = stage
        self.context = MemoryContext(stage, stores)
        self.context.watermark_ms = watermark_ms
        self.pipeline: Pipeline = stage.build(self.context)
        self._offset_next = 0
        self._commits_total = 0

    def feed(
        self,
        *records: tuple[bytes | None, bytes | None, int],
        topic: str = "",
        headers: Sequence[Headers] = (),
    ) -> RecordBatch:
        """Run one batch of (key, value, timestamp in ms); returns it as the stage left it."""
        offsets = list(range(self._offset_next, self._offset_next + len(records)))
        self.context.offset_first = self._offset_next
        self._offset_next += len(records)
        source = TopicPartition(
            topic or next(iter(self.stage.sources), "repartition"), self.context.partition
        )
        keys, values, times_ms = ([record[column] for record in records] for column in range(3))
        batch = RecordBatch(source, offsets, times_ms, keys, values, list(headers))  # type: ignore[arg-type]
        self.pipeline.process(batch)
        self.context.part_mark_ms = max([self.context.part_mark_ms, *batch.timestamps_ms])
        return batch

    def advance(self, watermark_ms: int) -> None:
        """Event time moves on."""
        self.context.watermark_ms = self.context.others_ms = watermark_ms
        self.pipeline.advance(watermark_ms)
        self.context.others_ms = NO_OTHERS_MS

    def commit(self) -> None:
        """What is dirty becomes committed; outputs stay where they are."""
        epoch = {name: changes for name, store in self.context.stores.items() if (changes := store.changes())}
        self._commits_total += 1
        positions = {name: StorePosition("bench", self._commits_total) for name in epoch}
        positions |= {index.family: index.mark for index in self.context.indexes}
        self.context.committed.apply(epoch, positions)
        for store in self.context.stores.values():
            store.committed()

    def restarted(self) -> StageBench:
        """The stage started anew on what was committed, at the same event time."""
        bench = StageBench(self.stage, self.context.committed, self.context.watermark_ms)
        bench.context.part_mark_ms = self.context.part_mark_ms
        bench._offset_next, bench._commits_total = self._offset_next, self._commits_total
        return bench
