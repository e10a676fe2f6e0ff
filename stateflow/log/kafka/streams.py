"""Records from the client's own queues into the native core, by librdkafka's public functions alone.

A *stream* is a queue of the core's own, to which the queues of the assigned partitions are forwarded. Records, ends and
errors of these partitions come to the stream; all that makes callbacks stays in the queue of the Python client, which
is polled beside it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator
from ctypes import c_char_p, c_int32, c_int64, c_void_p, py_object
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError

from stateflow.log.kafka.client_core import client_core, with_core
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.settings import Settings
from stateflow.log.newest import NewestSink, RecordsSink, Sink
from stateflow.native.library import Core, allocated, done
from stateflow.native.newest import NativeNewest
from stateflow.native.rows import HasHeaders, NativeRows
from stateflow.record import RecordBatch, TopicPartition

_FIRST_WAIT_MS, _WAIT_MS_MAX = 4, 64
_FRESH_SECONDS, _UNSETTLED_SECONDS_MAX, _AGAIN_SECONDS = 5.0, 60.0, 10.0
"""A partition is forwarded again before each fetch, and between two waits: librdkafka forgets it when it stops an
earlier assignment of one, some time after ``assign`` has returned. What comes until then waits in the partition's own
queue, and nowhere else: what was forwarded once never goes to the client's queue by itself. While an assignment is
fresh waits are short; then it is done until something has come of the partition: the stop is behind it by then. And
all are forwarded again now and then, however long a client without brokers may take to stop something."""
_NO_HEADERS: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class StreamCore:
    """The core's functions over streams."""

    core: Core
    made: Any
    open: Any
    close: Any
    follow: Any
    fetch: Any
    pull: Any
    release: Any
    groups: Any
    group: Any
    error: Any
    newest: Any
    rows: Any
    columns: Any


@functools.cache
def stream_core() -> StreamCore | None:
    """The functions, where the core is in use with this client."""
    used = client_core()
    if used is None:
        return None
    return StreamCore(
        core=used,
        made=used.function("sf_client_made", c_void_p),
        open=used.function("sf_stream_open", c_void_p, c_void_p, c_int64),
        close=used.function("sf_stream_close", None, c_void_p),
        follow=used.function("sf_stream_follow", c_int64, c_void_p, c_char_p, c_int32, c_int32),
        fetch=used.function("sf_stream_fetch", c_int64, c_void_p, c_int32, c_int64),
        pull=used.function("sf_stream_pull", c_int64, c_void_p, c_char_p, c_int32, c_int64),
        release=used.function("sf_stream_release", None, c_void_p),
        groups=used.function("sf_stream_groups", c_int64, c_void_p),
        group=used.function("sf_stream_group", c_char_p, c_void_p, c_int64, c_void_p),
        error=used.object_function("sf_py_stream_error", py_object, c_void_p, c_int64),
        newest=used.function("sf_stream_newest", c_int64, c_void_p, c_int64, c_void_p, c_int64, c_void_p),
        rows=used.function("sf_stream_rows", c_int64, c_void_p, c_int64, c_void_p, c_int64, c_void_p),
        columns=used.object_function("sf_py_stream_columns", py_object, c_void_p, c_int64, py_object),
    )


def made_consumer(settings: Settings, rows_max: int) -> tuple[Stream | None, Consumer]:
    """A client, and the stream of its records where the core is in use. The stream is to be closed first."""
    used = stream_core()
    if used is not None:
        consumer = Consumer(with_core(used.core, settings), logger=client_log)
        if (client := used.made()) is not None:
            return Stream(used, client, rows_max), consumer
    else:
        consumer = Consumer(settings, logger=client_log)
    return None, consumer


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error, or the end, of a partition; without one it concerns the client."""

    error: KafkaError
    partition: TopicPartition | None
    offset: int


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of one partition in a stream, until it is released."""

    stream: Stream
    index: int
    source: TopicPartition
    rows: int
    offset_first: int
    offset_last: int
    in_order: bool
    """Offsets ascend strictly."""

    def batch(self) -> RecordBatch:
        """The records, as objects of Python."""
        return self.stream.batch(self.index, self.source)

    def put_into(self, sink: Sink) -> None:
        """Take the records in where only the newest of each key is kept. Raises ``HasHeaders``."""
        if isinstance(sink, RecordsSink):
            if isinstance(sink.records, NativeRows):
                self.stream.put_rows(self.index, sink, sink.records.table)
            else:
                sink.add(self.batch())
        elif isinstance(sink.values, NativeNewest):
            self.stream.put_newest(self.index, sink, sink.values.table)
        else:
            sink.add(self.batch())


class Stream:
    """The records of one client. Used by one thread at a time."""

    _address: int | None = None
    """None when there is nothing to close."""

    def __init__(self, used: StreamCore, client: int, rows_max: int) -> None:
        self._used = used
        self._followed: set[TopicPartition] = set()
        self._on_demand: set[TopicPartition] = set()
        """Of those that are followed, the ones whose records stay in their own queues until they are pulled."""
        self._unsettled: dict[TopicPartition, float] = {}
        """Those whose forwarding may be forgotten yet, and when they were to be assigned."""
        self._again_seconds = time.monotonic() + _AGAIN_SECONDS
        """When all are forwarded again."""
        self.client = client
        """The library's handle."""
        self._address = allocated(used.open(client, rows_max))
        self._told = (c_int64 * 5)()

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the records of these, and of no others, come here; to be called before each assignment of theirs."""
        wanted = set(partitions)
        for partition in self._followed - wanted:
            self._forward(partition, follows=False)
        self.forget(self._followed - wanted)
        self.follow_more(wanted)

    def follow_more(self, partitions: Iterable[TopicPartition], *, on_demand: bool = False) -> None:
        """Have the records of these come here, too; to be called before each assignment of theirs."""
        now_seconds = time.monotonic()  # of the clock that the client's threads go by
        partitions = list(partitions)
        (self._on_demand.update if on_demand else self._on_demand.difference_update)(partitions)
        for partition in partitions:
            self._forward(partition, follows=True)
            self._followed.add(partition)
            self._unsettled[partition] = now_seconds

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are assigned no more; others are ignored."""
        for partition in list(partitions):
            self._followed.discard(partition)
            self._on_demand.discard(partition)
            self._unsettled.pop(partition, None)

    def let_come(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the records of these come by ``fetch`` from now on, behind those that were pulled.

        The reverse would need another assignment: what is under way in the one queue would come behind the other's.
        """
        for partition in self._on_demand.intersection(partitions):
            self._on_demand.discard(partition)
            self._forward(partition, follows=True)

    def pull(self, partition: TopicPartition, max_records: int) -> int:
        """Bring what is there of a partition on demand; how much that was, errors included."""
        topic, number = partition.topic.encode(), partition.partition
        return int(self._used.pull(self._address, topic, number, max_records))

    def fetch(self, timeout_seconds: float, max_records: int) -> int:
        """Bring what is there, waiting only while there is nothing; how much that was, errors included."""
        wait_ms, left_ms = _FIRST_WAIT_MS, int(timeout_seconds * 1000)
        while True:
            if not self._forward_again():
                wait_ms = left_ms
            found = int(self._used.fetch(self._address, min(wait_ms, left_ms), max_records))
            left_ms -= wait_ms
            if found or left_ms <= 0:
                return found
            wait_ms = min(2 * wait_ms, _WAIT_MS_MAX)

    def troubles(self) -> Iterator[Trouble]:
        """What is no record."""
        row = 0
        while (told := self._used.error(self._address, row)) is not None:
            row, code, text, topic, number, offset = told
            partition = None if topic is None else TopicPartition(topic, number)
            if partition in self._unsettled:
                self._heard(partition)
            yield Trouble(KafkaError(code, text), partition, offset)
            row += 1

    def arrived(self) -> Iterator[Arrived]:
        """The records, by partition."""
        for index in range(self._used.groups(self._address)):
            topic = self._used.group(self._address, index, self._told)
            partition, rows, first, last, in_order = self._told
            source = TopicPartition(topic.decode(), partition)
            if source in self._unsettled:
                self._heard(source)
            yield Arrived(self, index, source, rows, first, last, bool(in_order))

    def batch(self, index: int, source: TopicPartition) -> RecordBatch:
        """A partition's records."""
        found = self._used.columns(self._address, index, _NO_HEADERS)
        offsets, timestamps_ms, keys, values, headers, size_bytes = found
        batch = RecordBatch(source, offsets, timestamps_ms, keys, values, headers or [])
        batch.size_bytes = size_bytes
        return batch

    def put_newest(self, index: int, sink: NewestSink, table: int) -> None:
        """Take a partition's records into a table of the core. Raises ``MemoryError``."""
        told = self._told
        done(self._used.newest(self._address, index, table, sink.offset_next, told))
        sink.count(told[0], told[1])

    def put_rows(self, index: int, sink: RecordsSink, table: int) -> None:
        """The same with the records' times. Raises ``MemoryError``, or ``HasHeaders`` when some have any."""
        told = self._told
        done(self._used.rows(self._address, index, table, sink.offset_next, told))
        if told[2]:
            raise HasHeaders
        sink.records_total += told[0]

    def release(self) -> None:
        """What was fetched is no longer needed; to be called before the next fetch."""
        self._used.release(self._address)

    def close(self) -> None:
        """Let go of the client, which must not be closed before."""
        if self._address is not None:
            for partition in self._followed:
                self._forward(partition, follows=False)
            self._used.close(self._address)
            self._address = None

    __del__ = close

    def _forward_again(self) -> bool:
        """Forward what may have been forgotten; True while an assignment is fresh."""
        now_seconds, is_fresh = time.monotonic(), False
        if now_seconds >= self._again_seconds:
            self._again_seconds = now_seconds + _AGAIN_SECONDS
            for partition in self._followed - self._unsettled.keys():
                self._forward(partition, follows=True)
        for partition, since_seconds in list(self._unsettled.items()):
            self._forward(partition, follows=True)
            is_fresh |= now_seconds < since_seconds + _FRESH_SECONDS
            if now_seconds >= since_seconds + _UNSETTLED_SECONDS_MAX:
                del self._unsettled[partition]
        return is_fresh

    def _heard(self, partition: TopicPartition) -> None:
        if time.monotonic() >= self._unsettled[partition] + _FRESH_SECONDS:
            del self._unsettled[partition]

    def _forward(self, partition: TopicPartition, *, follows: bool) -> None:
        comes = follows and partition not in self._on_demand
        done(self._used.follow(self._address, partition.topic.encode(), partition.partition, comes))


def append_batch(batches: list[RecordBatch], came: Arrived | RecordBatch) -> None:
    """Add what came to a list of batches."""
    batches.append(came.batch() if isinstance(came, Arrived) else came)
