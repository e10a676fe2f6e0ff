"""Tables at work: rows that say what a key's value was and is, made, changed, regrouped and aggregated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.change import Change, ChangeCodec
from stateflow.codec.timed import Timed, TimedCodec, stamp
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import repeated, where, with_values, without, without_headers
from stateflow.operators.steps.step import Step
from stateflow.operators.topics.handover import Handover
from stateflow.operators.topics.tombstones import SparingStep
from stateflow.record import RecordBatch
from stateflow.store.base import StateStore


class TableStep(Step):
    """Keeps the newest value of each key; a row without a value deletes it. Passes on every change.

    The newest is the one that came last in the log, whatever its time.
    """

    takes_tombstones = True

    def __init__(self, value: Codec[Any], store: StateStore, guard: Guard) -> None:
        super().__init__()
        self._value = value
        self._codec = TimedCodec(value)
        self._store = store
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Write, and pass on what was and what is; the deletion of what is not there changes nothing."""
        batch = without_headers(with_keys(batch, self._guard))
        rows = list(zip(batch.values, batch.timestamps_ms, strict=True))
        stored, failed = self._guard.map(self._stored, rows, batch.offsets)
        batch = without(batch, failed)
        first = 0
        for part in by_distinct_keys(batch):
            before = self._codec.decode_many(self._store.get_many(part.keys))
            written = stored[first : first + len(part)]
            first += len(part)
            self._store.put_many(list(zip(part.keys, written, strict=True)))
            changes = [
                Change(None if old is None else old.value, new)
                for old, new in zip(before, part.values, strict=True)
            ]
            self.forward(real_changes(with_values(part, changes)))

    def _stored(self, row: tuple[Any, int]) -> bytes | None:
        value, timestamp_ms = row
        return None if value is None else stamp(self._value.encode(value), timestamp_ms)


class ChangesStep(Step):
    """Old and new values replaced by a function's results. A change between none and none is left out.

    A value that fails and is let go is left out, as by a filter: its key has none until the next one comes.
    """

    def __init__(self, function: Callable[[Any], Any], guard: Guard) -> None:
        super().__init__()
        self._function = function
        self._before = guard.remaking(function)
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Call the function for what is there of each change."""
        rows = list(zip(batch.values, batch.offsets, strict=True))
        changes, failed = self._guard.map(self._changed, rows, batch.offsets)
        self.forward(real_changes(with_values(without(batch, failed), changes)))

    def _changed(self, row: tuple[Change[Any], int]) -> Change[Any]:
        change, offset = row
        old = None if change.old is None else self._before(change.old)
        if change.new is None:
            return Change(old, None)
        new = self._guard.one_of_several(self._function, change.new, offset=offset)
        return Change(old, new[0] if new else None)


class CurrentStep(SparingStep):
    """A table as a stream: each new value; a deletion is a row without one."""

    takes_tombstones = False

    def process(self, batch: RecordBatch) -> None:
        """Drop what was."""
        self.forward(with_values(batch, [change.new for change in batch.values]))


class RegroupStep(Step):
    """Sends each change on to the groups that its old and its new value belong to.

    A value that fails and is let go is in no group.
    """

    def __init__(
        self,
        key_of: Callable[[Any], Any],
        codecs: tuple[Codec[Any], ChangeCodec[Any]],
        handover: Handover,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._key_of = key_of
        self._group_before = guard.remaking(self._group)
        self._key, self._change = codecs
        self._handover = handover
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Encode and hand over: one record, or two where a row has moved from one group to another."""
        rows_in = list(zip(batch.values, batch.offsets, strict=True))
        sent, failed = self._guard.map(self._encoded, rows_in, batch.offsets)
        rows = repeated(without(batch, failed), sent)
        if len(rows):
            keys, values = zip(*rows.values, strict=True)
            self._handover.send(rows, keys, values)

    def _encoded(self, row: tuple[Change[Any], int]) -> list[tuple[bytes, bytes]]:
        change, offset = row
        old = None if change.old is None else self._group_before(change.old)
        named = (
            [] if change.new is None else self._guard.one_of_several(self._group, change.new, offset=offset)
        )
        if old is not None and named == [old]:
            return [(old, self._change.encode(change))]
        left, entered = Change(change.old, None), Change(None, change.new)
        sent = [] if old is None else [(old, self._change.encode(left))]
        return sent + [(new, self._change.encode(entered)) for new in named]

    def _group(self, value: Any) -> bytes:
        key = self._key_of(value)
        if key is None:
            raise ValueError("the group is None: filter such values out before")
        return self._key.encode(key)


class AggregateTableStep(Step):
    """An accumulator per group: the old value of a change is taken out of it, then the new one added.

    A result is as new as the newest row that contributed. Every change is passed on, one by one.
    """

    def __init__(
        self,
        functions: tuple[Callable[[], Any], Callable[[Any, Any], Any], Callable[[Any, Any], Any]],
        codec: Codec[Timed[Any]],
        store: StateStore,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._initial, self._add, self._remove = functions
        self._codec = codec
        self._store = store
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Take out, add, write, pass on."""
        batch = with_keys(batch, self._guard)
        self._store.get_many(sorted(set(batch.keys)))  # one lookup on disk; those below find it in memory
        rows = list(zip(batch.keys, batch.values, batch.timestamps_ms, strict=True))
        results, failed = self._guard.map(self._updated, rows, batch.offsets)
        batch = without(batch, failed)
        times_ms = [timestamp_ms for _, timestamp_ms in results]
        moved = with_times(with_values(batch, [change for change, _ in results]), times_ms)
        self.forward(real_changes(moved))

    def _updated(self, row: tuple[bytes, Change[Any], int]) -> tuple[Change[Any], int]:
        key, change, timestamp_ms = row
        stored = self._store.get(key)
        before = None if stored is None else self._codec.decode(stored)
        # Read twice: what the functions change in place is not to change what was.
        now = None if stored is None else self._codec.decode(stored).value
        if before is not None:
            timestamp_ms = max(timestamp_ms, before.timestamp_ms)
            if change.old is not None:
                now = self._remove(now, change.old)
        if change.new is not None:
            now = self._add(self._initial() if now is None else now, change.new)
        self._store.put_many([(key, None if now is None else self._codec.encode(Timed(timestamp_ms, now)))])
        return Change(None if before is None else before.value, now), timestamp_ms


def by_distinct_keys(batch: RecordBatch) -> Iterator[RecordBatch]:
    """The batch in parts, in order, each of which has a key once: so one lookup tells what was before each row."""
    seen: set[bytes] = set()
    first = 0
    for row, key in enumerate(batch.keys):
        if key in seen:
            yield batch.rows(first, row)
            first = row
            seen.clear()
        seen.add(key)
    if first < len(batch):
        yield batch.rows(first, len(batch)) if first else batch


def with_times(batch: RecordBatch, times_ms: list[int]) -> RecordBatch:
    """The rows with times that are as they were or later; a mark is never before its row's own time."""
    marks_ms = batch.marks_ms
    if marks_ms is not None:
        marks_ms = [max(mark_ms, time_ms) for mark_ms, time_ms in zip(marks_ms, times_ms, strict=True)]
    return replace(batch, timestamps_ms=times_ms, marks_ms=marks_ms)


def real_changes(batch: RecordBatch) -> RecordBatch:
    """The rows that have a value before or after."""
    return where(batch, [change.old is not None or change.new is not None for change in batch.values])
