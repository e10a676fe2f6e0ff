"""Reading the memory log by assignment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stateflow.errors import OffsetOutOfRange
from stateflow.log.memory.broker import MemoryBroker
from stateflow.log.memory.partition import Slot
from stateflow.record import RecordBatch, TopicPartition


def batch_of(source: TopicPartition, slots: list[Slot]) -> RecordBatch:
    """The records of slots, in columns."""
    payloads = [slot.payload for slot in slots if slot.payload is not None]
    has_headers = any(payload.headers for payload in payloads)
    return RecordBatch(
        source,
        offsets=[slot.offset for slot in slots],
        timestamps_ms=[payload.timestamp_ms for payload in payloads],
        keys=[payload.key for payload in payloads],
        values=[payload.value for payload in payloads],
        headers=[payload.headers for payload in payloads] if has_headers else [],
    )


class MemoryReader:
    """Implements :class:`stateflow.log.base.Reader`. Partitions take turns at being read first."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._positions: dict[TopicPartition, int] = {}
        self._on_demand: set[TopicPartition] = set()
        self.passed: set[TopicPartition] = set()
        """Those read further without a record."""

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        self._positions = dict(offsets)
        self._on_demand = set()

    def read(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:  # noqa: ARG002 - never waits
        """What is there now; the timeout is not waited for, as nothing can arrive meanwhile."""
        batches: list[RecordBatch] = []
        left = max_records
        with self._broker.lock:
            self._broker.expire()
            for partition in [tp for tp in self._positions if tp not in self._on_demand]:
                if left <= 0:
                    break
                left -= self._read_partition(partition, left, batches)
        return batches

    def pull(self, partition: TopicPartition, max_records: int) -> list[RecordBatch]:
        """What there is now of one partition."""
        batches: list[RecordBatch] = []
        with self._broker.lock:
            self._broker.expire()
            if partition in self._positions:
                self._read_partition(partition, max_records, batches)
        return batches

    def is_at_end(self, partition: TopicPartition) -> bool:
        """True when nothing is left to read of a partition."""
        with self._broker.lock:
            fetched = self._broker.partition(partition).fetch(self._positions[partition], 1)
        return fetched.at_end and not fetched.slots

    def let_come(self, partitions: Iterable[TopicPartition]) -> None:
        """Have these in what ``read`` gives from now on."""
        self._on_demand.difference_update(partitions)

    def _read_partition(self, partition: TopicPartition, max_records: int, into: list[RecordBatch]) -> int:
        log = self._broker.partition(partition)
        offset = self._positions[partition]
        if not log.log_start <= offset <= log.end:
            raise OffsetOutOfRange(
                f"Offset {offset} is not in the log of {partition}, which is {log.log_start} to {log.end}.",
                action="restore from the start of the log, or from an image within it.",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                low=log.log_start,
                high=log.range.offset_next,
            )
        fetched = log.fetch(offset, max_records)
        if fetched.slots:
            into.append(batch_of(partition, fetched.slots))
            self._positions.pop(partition)  # to the end of the order: others come first next time
            self._positions[partition] = fetched.slots[-1].offset + 1
        elif fetched.at_end:
            if fetched.position > offset:
                self.passed.add(partition)
            self._positions[partition] = fetched.position
        return len(fetched.slots)

    def position(self, partition: TopicPartition) -> int:
        """The next offset; the read *after* the last record moves it past markers and gaps."""
        return self._positions[partition]

    def add(self, offsets: Mapping[TopicPartition, int], *, on_demand: bool = False) -> None:
        """Read these too, from here on."""
        self._positions.update(offsets)
        (self._on_demand.update if on_demand else self._on_demand.difference_update)(offsets)

    def drop(self, partition: TopicPartition) -> None:
        """Stop reading a partition, if it is read."""
        self._positions.pop(partition, None)
        self._on_demand.discard(partition)

    def close(self) -> None:
        """Forget the assignment."""
        self.assign({})
