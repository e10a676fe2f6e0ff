"""What a worker has read and not processed yet.

The group's position is behind the last record that was read; a task's is behind the last that it has processed. What
lies between waits here, bounded in records, and goes without a trace when its task is taken away: whoever runs the
task next reads it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping

from stateflow.clock import Clock, SystemClock
from stateflow.errors import OffsetOutOfRange
from stateflow.log.base import GroupConsumer
from stateflow.record import RecordBatch, TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.removed_input import removed_input
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.alignment import Alignment, MarkOf
from stateflow.runtime.worker.slices import SliceSize

_BUSY_POLLS_MAX = 4
"""So many polls may wait for tasks that are busy, before nothing more is read for others either."""
_WAITING_SECONDS_MAX = 5.0
"""More work than this is not kept waiting: see ``Intake.end_turn``."""
_SLICES_ON_DEMAND, _SLICE_SECONDS = 4, 0.1
"""Of an input on demand so many slices are asked for at a time, which take so long each: what waits is done soon."""
_DRY_SECONDS = 1.0
"""An input on demand that was read to its end, and has had nothing for so long, comes by itself."""
_DRY_WAIT_SECONDS = 0.01
"""How long a poll waits at most while some input is on demand."""


class Intake:
    """Reads the started inputs of a group member and hands their records out in slices, in order.

    At most ``poll_records_max`` records wait for tasks that can take them, and a few times as many for those that are
    ``busy``. No more are read while keys and values fill half of the memory for input; the other half is the client's.

    Inputs of one task are kept in step (``alignment.py``): while one of several has a backlog its records stay with the
    client until they are asked for, so that those of another are not behind all of them in the client's queue.
    """

    def __init__(
        self,
        group: GroupConsumer,
        settings: WorkerSettings,
        busy: Collection[TopicPartition] = (),
        clock: Clock | None = None,
        wiring: Wiring | None = None,
    ) -> None:
        """With ``wiring`` it tells what to do about input that was removed before it was read."""
        self._wiring = wiring
        self._group = group
        self._clock = clock or SystemClock()
        self._settings = settings
        self._bytes_max = settings.memory.input_bytes // 2
        self._started: dict[TopicPartition, SliceSize] = {}
        self._waiting: dict[TopicPartition, _Queue] = {}
        self._held: dict[TopicPartition, int] = {}
        """Inputs that are not read on for now, and where their reading goes on."""
        self._busy = busy
        """Inputs whose tasks cannot take anything now, as of whenever it is looked at."""
        self._put_off: set[TopicPartition] = set()
        """Inputs that nothing more is taken from in this turn; they are behind the others."""
        self._alignment = Alignment()
        self._on_demand: dict[TopicPartition, float] = {}
        """Inputs whose records are asked for, and when there were some last, or the input was started."""

    def __len__(self) -> int:
        """Records that wait."""
        return sum(len(queue) for queue in self._waiting.values())

    def start(
        self,
        offsets: Mapping[TopicPartition, int],
        records_min: int = 1,
        mark_ms: MarkOf | None = None,
        *,
        calls_application: bool = True,
    ) -> None:
        """Read these inputs, from here; fewer than ``records_min`` are handed out only where no more are there.

        With ``mark_ms`` they are those of one task, kept in step.
        """
        self._started.update(
            (source, SliceSize(self._settings, records_min, calls_application=calls_application))
            for source in offsets
        )
        if mark_ms is not None:
            self._alignment.begin(offsets, mark_ms)
        self._read_from(offsets)

    def stop(self, sources: Iterable[TopicPartition]) -> None:
        """Stop reading, and forget what waits; unknown inputs are ignored."""
        gone = list(sources)
        for source in gone:
            self._started.pop(source, None)
            self._waiting.pop(source, None)
            self._held.pop(source, None)
            self._on_demand.pop(source, None)
        self._alignment.end(gone)
        self._group.stop(gone)

    def poll(self, timeout_seconds: float) -> None:
        """Serve the group and read what there is room for, waiting only while nothing waits here."""
        for source in [source for source in self._on_demand if source not in self._waiting]:
            self._pull(source)
        room = 1 if self._is_full else self._settings.poll_records_max - self._ready
        if self._on_demand:
            timeout_seconds = min(timeout_seconds, _DRY_WAIT_SECONDS)
        for batch in self._polled(room, 0.0 if self._waiting else timeout_seconds):
            self._append(batch)
            if batch.source in self._alignment and batch.source not in self._on_demand:
                self._put_on_demand(batch.source)

    def _polled(self, room: int, timeout_seconds: float) -> list[RecordBatch]:
        try:
            return self._group.poll(room, timeout_seconds)
        except OffsetOutOfRange as error:
            where = error.fields
            source = TopicPartition(str(where["topic"]), int(str(where["partition"])))
            reader = None if self._wiring is None else self._wiring.reader(source)
            offset, low, high = (int(str(where[name])) for name in ("offset", "low", "high"))
            if reader is None or offset >= low:  # beyond the end: the topic is another one
                raise
            raise removed_input(reader, source, offset, low, high) from error

    def _append(self, batch: RecordBatch) -> None:
        # Of an input that was stopped meanwhile another worker, or a later life of the task, reads it again.
        if len(batch) and batch.source in self._started and batch.source not in self._held:
            self._waiting.setdefault(batch.source, _Queue()).append(batch)

    def _read_from(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Start inputs: each that is one of several of a task on demand, for it may have a backlog."""
        on_demand = (
            [source for source in offsets if source in self._alignment] if self._group.gives_on_demand else []
        )
        self._on_demand.update(dict.fromkeys(on_demand, self._clock.monotonic_seconds()))
        self._group.start({source: offsets[source] for source in on_demand}, on_demand=True)
        self._group.start({source: offset for source, offset in offsets.items() if source not in on_demand})

    def _put_on_demand(self, source: TopicPartition) -> None:
        """An input with a backlog by now is read on demand from here on; what was fetched ahead is read again."""
        has_backlog = (
            source in self._waiting and len(self._waiting[source]) >= self._settings.poll_records_max
        )
        if has_backlog and source not in self._held and self._group.gives_on_demand:
            self._read_from({source: self._group.position(source)})

    def _pull(self, source: TopicPartition) -> None:
        """Ask an input on demand for more, if there is room."""
        if self._is_full:
            return
        wanted = _SLICES_ON_DEMAND * self._started[source].fitting(_SLICE_SECONDS)
        room = min(wanted, self._settings.poll_records_max - self._ready)
        for batch in self._group.pull(source, room):
            self._append(batch)
        now_seconds = self._clock.monotonic_seconds()
        if source in self._waiting:
            self._on_demand[source] = now_seconds
        elif now_seconds - self._on_demand[source] >= _DRY_SECONDS and self._group.is_at_end(source):
            del self._on_demand[source]
            self._group.let_come([source])

    @property
    def _is_full(self) -> bool:
        """True when no more should be read; the group wants to be served nevertheless, so some is."""
        size_bytes = sum(queue.size_bytes for queue in self._waiting.values())
        most = self._settings.poll_records_max
        is_long = self._ready >= most or len(self) >= _BUSY_POLLS_MAX * most
        return is_long or size_bytes >= self._bytes_max

    @property
    def _ready(self) -> int:
        """Records that wait for tasks that can take them."""
        return sum(len(queue) for source, queue in self._waiting.items() if source not in self._busy)

    def position(self, source: TopicPartition) -> int:
        """The next offset of an input to be handed out: all before it was, or has no record."""
        if source in self._waiting:
            return self._waiting[source].offset_first
        return self._group.position(source)

    def passed(self) -> set[TopicPartition]:
        """Inputs that were read further without a record since this was asked last."""
        return self._group.passed()

    @property
    def first(self) -> TopicPartition | None:
        """The input that ``take`` takes from; None while nothing waits, or all that does is put off or busy."""
        for source in self._waiting:
            if source not in self._busy:
                following = self._alignment.next_of(source, self._waiting)
                if following not in self._put_off:
                    return following
        return None

    @property
    def sources(self) -> Iterable[TopicPartition]:
        """Inputs of which records wait."""
        return self._waiting.keys()

    def take(self, seconds: float) -> RecordBatch:
        """The next records of the ``first`` input: as many as fit into a time, at least one."""
        source = self.first
        assert source is not None, "nothing waits that could be taken"
        queue = self._waiting[source]
        batch = queue.take(self._started[source].fitting(seconds))
        if not len(queue):
            del self._waiting[source]
            if source in self._held:
                self._read_from({source: self._held.pop(source)})
            elif source in self._on_demand:
                self._pull(source)
        return batch

    def put_back(self, batch: RecordBatch) -> None:
        """The last of what ``take`` has just given has to wait for another turn, and its input with it."""
        queue = self._waiting.pop(batch.source, None) or _Queue()
        queue.put_back(batch)
        self._waiting[batch.source] = queue
        self._put_off.add(batch.source)

    def took(self, batch: RecordBatch, seconds: float) -> None:
        """A slice was processed, in so long."""
        if len(batch) and batch.source in self._started:
            self._started[batch.source].took(len(batch), seconds)

    def end_turn(self) -> None:
        """Let another input be the first in the next turn, and give back what would wait for long.

        In plain Python the client tells of a rebalance only behind all the records that it has fetched ahead, which at
        20 ms each may be hours. An input that takes long is therefore not read on until what is kept of it is
        processed: that drops what was fetched, and makes room for the inputs of other tasks.
        """
        put_off, self._put_off = self._put_off & self._waiting.keys(), set()
        if not self._waiting:
            return
        if self._is_full:  # with all of these waiting it would grow with every poll
            self._hold({source: self._group.position(source) for source in put_off - self._held.keys()})
        first = next(iter(self._waiting))
        self._waiting[first] = self._waiting.pop(first)
        seconds = {
            source: len(queue) * self._started[source].seconds_per_record
            for source, queue in self._waiting.items()
        }
        if sum(seconds.values()) <= _WAITING_SECONDS_MAX:
            return
        share_seconds = _WAITING_SECONDS_MAX / len(seconds)
        slow: dict[TopicPartition, int] = {}
        for source in (source for source in seconds if seconds[source] > share_seconds):
            queue = self._waiting[source]
            read_next = self._held[source] if source in self._held else self._group.position(source)
            kept = int(len(queue) * share_seconds / seconds[source])
            kept = max(self._started[source].records_min, kept)
            slow[source] = queue.keep(kept, read_next)
        self._hold(slow)

    def _hold(self, inputs: Mapping[TopicPartition, int]) -> None:
        """Read these no further until what waits of them is processed; reading goes on from where it says."""
        self._held.update(inputs)
        for source in inputs:
            self._on_demand.pop(source, None)
        if inputs:
            self._group.stop(list(inputs))


class _Queue:
    """Records of one input, in order, as the batches in which they were read."""

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()
        self._sizes: deque[int] = deque()
        """Of each batch, which is looked through for it once."""
        self._taken = 0
        """Rows of the first batch that are gone."""
        self._records = 0
        self.size_bytes = 0
        """Of keys and values, those included that were taken from the first batch."""

    def __len__(self) -> int:
        return self._records

    @property
    def offset_first(self) -> int:
        """Offset of the next record."""
        return self._batches[0].offsets[self._taken]

    def append(self, batch: RecordBatch) -> None:
        """Behind what is there."""
        self._batches.append(batch)
        self._sizes.append(batch.content_bytes())
        self._records += len(batch)
        self.size_bytes += self._sizes[-1]

    def take(self, records_max: int) -> RecordBatch:
        """The next records, at most those that were read together."""
        batch, first = self._batches[0], self._taken
        after = min(len(batch), first + records_max)
        self._records -= after - first
        self._taken = after
        if after == len(batch):
            self._batches.popleft()
            self.size_bytes -= self._sizes.popleft()
            self._taken = 0
        return batch if after - first == len(batch) else batch.rows(first, after)

    def put_back(self, batch: RecordBatch) -> None:
        """The last rows of what was just taken, before all others again."""
        self._records += len(batch)
        if self._taken:
            self._taken -= len(batch)
        else:
            self._batches.appendleft(batch)
            self._sizes.appendleft(batch.content_bytes())
            self.size_bytes += self._sizes[0]

    def keep(self, records_max: int, read_next: int) -> int:
        """Drop all but the first records; where to read on, ``read_next`` if nothing was dropped."""
        while self._records > records_max:
            batch = self._batches.pop()
            first = 0 if self._batches else self._taken
            dropped = min(self._records - records_max, len(batch) - first)
            read_next = batch.offsets[-dropped]
            self._records -= dropped
            if dropped < len(batch) - first:
                self._batches.append(batch.rows(first, len(batch) - dropped))
                self._taken = 0 if len(self._batches) == 1 else self._taken
        self._sizes = deque(map(RecordBatch.content_bytes, self._batches))
        self.size_bytes = sum(self._sizes)
        return read_next
