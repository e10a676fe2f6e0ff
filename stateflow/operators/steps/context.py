"""What a running stage may ask of the task that hosts it, and what the task may ask of the stage.

Operators know neither Kafka nor RocksDB nor threads: bytes go in and out here, so the same stage runs in the
local worker, in the test driver and inside a Spark task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from stateflow.catalog.model import StoreEntry
from stateflow.changelog.eventual import Eventual, EventualChangelog
from stateflow.clock import Clock
from stateflow.codec.base import Codec
from stateflow.native.folds import Folding
from stateflow.record import Headers, RecordBatch, TopicPartition
from stateflow.store.base import StateStore
from stateflow.store.decoded import DecodedStore


class GlobalEntries(Protocol):
    """A topic that a worker reads whole for its tasks: the newest value of each key."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key as far as the topic was read."""
        ...

    def catch_up(self) -> None:
        """Take in what has arrived, a bounded number of records; waits for nothing. Raises ``GlobalTableTooLarge``."""
        ...


class StageContext(Protocol):
    """The task, as its operators see it."""

    @property
    def partition(self) -> int:
        """The partition that this task owns."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def watermark_ms(self) -> int:
        """Event time up to which input is complete, over all upstreams; −1 before the first record.

        Fixed while one batch is processed.
        """
        ...

    @property
    def is_stopping(self) -> bool:
        """True once the host was asked to stop: what takes long may be given up, by ``TransactionAborted``."""
        ...

    def at_close(self, callback: Callable[[], object]) -> None:
        """Call this when the task is closed or abandoned."""
        ...

    def takes_at_once(self, records: int) -> None:
        """A step takes hardly longer for so many records than for one: fewer at a time would not be faster."""
        ...

    @property
    def part_mark_ms(self) -> int:
        """In a stage that reads source topics: the mark of the partition of the current records before them; or −1."""
        ...

    @property
    def others_ms(self) -> int:
        """The least mark of the upstreams that the current records are not from.

        ``marks.NO_OTHERS_MS`` where there are none; −1 where a record does not tell from which upstream it is.
        """
        ...

    def port(self, topic: str) -> str:
        """The input that a topic is read as: itself, or the re-key step whose topic it is in this generation."""
        ...

    def store(self, name: str) -> StateStore:
        """The stage's own store of that name."""
        ...

    def decoded_store(self, name: str, codec: Codec[Any], folding: Folding | None = None) -> DecodedStore:
        """The same, for one whose step keeps values decoded until the commit; asked once, while it is built.

        ``folding`` says how values are folded, where the core may do it.
        """
        ...

    def eventual(self, store: str, policy: Eventual) -> EventualChangelog:
        """Make the changelog of one of the stage's stores an eventual one; asked once, while it is built."""
        ...

    def entry(self, name: str) -> StoreEntry:
        """The stage's own store of that name as the catalog has it."""
        ...

    def global_entries(self, topic: str, bytes_max: int) -> GlobalEntries:
        """A topic read whole, until the task is closed; asked while the stage is built, and waits until that is done.

        Raises ``GlobalTableTooLarge`` where it takes more than ``bytes_max`` of memory, ``TopicMissing``.
        """
        ...

    def undoable(self) -> AbstractContextManager[None]:
        """A scope around one record: if it is left by an exception, its writes and its sends are undone."""
        ...

    def send_many(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int],
        headers: Sequence[Headers] = (),
    ) -> None:
        """Produce to an output topic with the default partitioner, in order, as part of the next commit.

        ``headers`` is empty where no record has any; so it is below.
        """
        ...

    def record_bytes_max(self, topic: str) -> int:
        """The largest record, as ``record.record_bytes`` counts, that may be sent to a topic."""
        ...

    def rekey_topic(self, name: str) -> str:
        """The topic of a re-key step in this generation."""
        ...

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers = ()
    ) -> None:
        """Produce one record with headers (dead letters)."""
        ...

    def rekey_many(
        self,
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps_ms: Sequence[int],
        marks_ms: Sequence[int] | None = None,
        headers: Sequence[Headers] = (),
    ) -> None:
        """Hand records to the re-key step ``name``: routed by the generation's table to its repartition topic.

        ``marks_ms`` None: the mark of each is its own time.
        """
        ...

    def count(self, metric: str, amount: int = 1) -> None:
        """Add to a counter (``skipped_records_total``, ``dead_letters_total``, ``empty_records_total``)."""
        ...

    def late(self, step: str, source: TopicPartition, offset: int, timestamp_ms: int, mark_ms: int) -> None:
        """A record came too late for a window of ``step``, in which event time was ``mark_ms`` already.

        Count it (``late_records_total``), and let people know of it.
        """
        ...

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
        """A record of a source is far ahead of a time that it was compared with.

        Count it, ``refused`` by the topic's ``max_ahead`` (``ahead_records_total``) or as a jump of event time that
        nothing forbids (``time_jumps_total``), and let people know of it.
        """
        ...


class Burst(NamedTuple):
    """A row of a raw batch before which timers have to fire in turns: ``operators/steps/timers.py``."""

    row: int
    watermark_ms: int
    """Event time with that row, up to which they are due."""


class Pipeline(Protocol):
    """One stage, built for one task."""

    def process(self, batch: RecordBatch) -> None:
        """Run raw records of one input partition through the stage.

        Raises ``DecodeError`` or ``ProcessingError`` where the step's policy is *fail*; nothing of the failed
        record has then been written.
        """
        ...

    def first_burst(self, batch: RecordBatch) -> Burst | None:
        """The first row of a raw batch that makes more timers due than fire in one piece; changes nothing.

        Asked before ``process``, which is to get the rows before it only until ``advance`` has fired those timers.
        """
        ...

    @property
    def calls_application(self) -> bool:
        """True where code of the application may be called for a record, and so take any time."""
        ...

    @property
    def needs_turns(self) -> bool:
        """True where ``advance`` may have something to do though event time has not moved and it left nothing."""
        ...

    def advance(self, watermark_ms: int) -> bool | None:
        """Time may have moved on: close windows, fire timers, a bounded number of them; True when more are due.

        Called between batches, in every turn of the host's loop, and before a commit.
        """
        ...

    def finish(self, watermark_ms: int, horizons_ms: list[int]) -> bool | None:
        """In the place of ``advance`` once the input has ended: fire and close all that is pending, in turns.

        ``horizons_ms`` is how far event time was carried in the steps that wait for it, and grows. True when more is
        due.
        """
        ...

    def statistics(self) -> Iterator[tuple[str, int]]:
        """Counters kept by the operators."""
        ...
