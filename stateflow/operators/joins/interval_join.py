"""Stream–stream joins: each record waits, in state, for those of the other stream within its interval.

Both sides of a key are maps from (time, number) to values. What has found no partner yet, and is to be passed on
without one, stands in a set beside them. No timer is set: a list of all entries by time (``waiting_side.py``) tells
which intervals are over, the oldest first; what is unmatched then is passed on, once, and forgotten with the rest.

What is in time has no partner among what is over, so it makes no difference to pairs when that is forgotten. Rows
without a partner are passed on before the next record of their key all the same, as a timer would, and else when the
step is told of event time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import Any, Literal

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.scalar import Bytes
from stateflow.errors import EncodeError, ProcessingError, StateflowError
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.joins.intervals import Within
from stateflow.operators.joins.waiting_side import Unmatched, WaitingSide, time_of
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import LatePolicy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of
from stateflow.operators.steps.rows import NO_OFFSET, left_of
from stateflow.operators.steps.step import PortedStep
from stateflow.operators.steps.timers import Turn
from stateflow.operators.windows.lateness import GraceCheck
from stateflow.record import RecordBatch, TopicPartition, has_none
from stateflow.state.declaration import state
from stateflow.state.declare import StateField, declared_fields
from stateflow.state.layout import LENGTH_BYTES, prefix_bytes, prefixed_key
from stateflow.state.mapof import MapOf
from stateflow.state.setof import SetOf
from stateflow.state.timers import timers_entry
from stateflow.store.base import StateStore

JoinKind = Literal["inner", "left", "outer"]
LEFT, RIGHT = "on_left", "on_right"
"""The handlers of the two inputs."""

Entries = list[tuple[bytes, bytes]]
"""Store keys and values."""

_LEFT_SIDE, _RIGHT_SIDE = b"l", b"r"
_TELLS_ALONE: dict[JoinKind, tuple[bytes, ...]] = {
    "inner": (),
    "left": (_LEFT_SIDE,),
    "outer": (_LEFT_SIDE, _RIGHT_SIDE),
}
_DATA = itemgetter(1)
"""The value of an entry."""
_CHUNK_ENTRIES = 1_000
"""Entries of a side that are forgotten together, between two looks at what is left of the turn."""
_ENTRIES_PER_TURN = 20_000


@dataclass(frozen=True, slots=True)
class IntervalRules:
    """What is joined with what."""

    name: str
    within: Within
    kind: JoinKind
    function: Callable[[Any, Any], Any]
    late: LatePolicy


@dataclass(frozen=True, slots=True)
class IntervalState:
    """The stores of a join."""

    left: StateField
    right: StateField
    unmatched: StateField | None
    """None for an inner join."""
    timers_store: str
    """Where joins had timers once; what is left of them is deleted."""

    @property
    def fields(self) -> tuple[StateField, ...]:
        """Those that it uses."""
        return (self.left, self.right, *(() if self.unmatched is None else (self.unmatched,)))

    def entries(self, key_codec: Codec[Any]) -> tuple[StoreEntry, ...]:
        """All of them as the catalog describes them."""
        kept = (field.entry("", key_codec) for field in self.fields)
        return (*kept, timers_entry(self.timers_store, key_codec))


def interval_state(rules: IntervalRules, left: Codec[Any], right: Codec[Any]) -> IntervalState:
    """The stores of a join of values that are written so."""
    lefts, rights = left.as_state, right.as_state

    class Inner:
        left: MapOf[bytes, Any] = state(codec=lefts, key_codec=Bytes)
        right: MapOf[bytes, Any] = state(codec=rights, key_codec=Bytes)

    class WithUnmatched(Inner):
        unmatched: SetOf[bytes] = state()

    owner = Inner if rules.kind == "inner" else WithUnmatched
    fields = {field.attribute: field for field in declared_fields(owner, rules.name)}
    return IntervalState(fields["left"], fields["right"], fields.get("unmatched"), f"{rules.name}-timers")


class IntervalJoinStep(PortedStep):
    """Such a join at work: late records are left out before it, and its rows are never late behind it."""

    takes_tombstones = False

    def __init__(
        self,
        kept: IntervalState,
        rules: IntervalRules,
        key_codec: Codec[Any],
        stage: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._stage = stage
        self._guard = guard
        self._key_codec = key_codec
        self._function = rules.function
        self._source = TopicPartition(rules.name, stage.partition)
        self._before_ms, self._after_ms = rules.within.before_ms, rules.within.after_ms
        self._lateness = GraceCheck(rules.name, rules.within.grace_ms, rules.late, stage, guard)
        self._reached_ms = stage.watermark_ms
        """Event time as this step was told of it."""
        kept_ms = {_LEFT_SIDE: rules.within.left_kept_ms, _RIGHT_SIDE: rules.within.right_kept_ms}
        fields = {_LEFT_SIDE: kept.left, _RIGHT_SIDE: kept.right}
        self._codecs = {side: field.reading(stage.entry(field.store)) for side, field in fields.items()}
        self._sides = {side: WaitingSide(stage, fields[side].store, kept_ms[side]) for side in fields}
        self._tells_alone = _TELLS_ALONE[rules.kind]
        """The sides whose records are passed on without a partner."""
        self._unmatched: Unmatched | None = None
        if kept.unmatched is not None:
            self._unmatched = Unmatched(stage, kept.unmatched.store, kept_ms)
        self._kept: list[WaitingSide | Unmatched] = list(self._sides.values())
        if self._unmatched is not None:
            self._kept.append(self._unmatched)
        self._written = [store for side in self._sides.values() for store in (side.store, side.listed)]
        self._former_timers: StateStore | None = stage.store(kept.timers_store)

    # --- records ----------------------------------------------------------------------------------------

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Join the rows of one side that are in time."""
        batch = with_keys(self._lateness.in_time(batch, self._reached_ms), self._guard)
        if not len(batch):
            return
        out = RecordBatch(batch.source, [], [], [], [])
        if handler == LEFT:
            self._join(batch, _LEFT_SIDE, _RIGHT_SIDE, out)
        else:
            self._join(batch, _RIGHT_SIDE, _LEFT_SIDE, out)
        for each in self._kept:
            each.flush()
        # Which of two records came second depends on how the inputs were read, and must not make their pair late:
        # so the mark of a row is its own time.
        self.forward(out)

    def _join(self, batch: RecordBatch, own_side: bytes, other_side: bytes, out: RecordBatch) -> None:
        own, other, unmatched = self._sides[own_side], self._sides[other_side], self._unmatched
        earlier_ms, later_ms = self._before_ms, self._after_ms
        if own_side == _RIGHT_SIDE:
            earlier_ms, later_ms = later_ms, earlier_ms
        notes_own = own_side in self._tells_alone
        encode = self._codecs[own_side].encode
        prefixes = {key: prefixed_key(key) for key in set(batch.keys)}
        for each in self._kept:
            each.open(list(prefixes.values()))
        all_encoded: Sequence[Any] = self._encoded(own_side, batch)
        if unmatched is None and not has_none(all_encoded):
            of_rows = [prefixes[key] for key in batch.keys]
            # The rows of one input are no partners of each other: they are added together when all have been paired.
            for row in other.rows_with_entries(of_rows):
                at_ms = batch.timestamps_ms[row]
                found = other.between(of_rows[row], at_ms - earlier_ms, at_ms + later_ms)
                if found:
                    self._pair(
                        own_side, batch.values[row], found, batch.offsets[row], batch.keys[row], at_ms, out
                    )
            own.add_all(of_rows, batch.timestamps_ms, all_encoded)
            return
        rows = zip(
            batch.offsets,
            batch.timestamps_ms,
            self._event_times_ms(batch),
            batch.keys,
            batch.values,
            all_encoded,
            strict=True,
        )
        for offset, at_ms, reached_ms, key, value, encoded in rows:
            prefix = prefixes[key]
            if unmatched is not None:
                self._pass_on_over_of(unmatched, key, prefix, reached_ms, out)
            data = encoded
            if data is None:  # what cannot be stored meets nothing: who came first would decide what it meets
                stored, refused = self._guard.map(encode, [value], [offset])
                if refused:
                    continue
                (data,) = stored
            found = other.between(prefix, at_ms - earlier_ms, at_ms + later_ms)
            if found:
                self._pair(own_side, value, found, offset, key, at_ms, out)
                if unmatched is not None:  # a pair that failed was one all the same
                    for store_key, _ in found:
                        unmatched.discard(prefix, other_side, store_key)
            store_key = own.add(prefix, at_ms, data)
            if unmatched is not None and notes_own and not found:
                unmatched.add(prefix, own_side, store_key)

    def _pair(
        self, side: bytes, value: Any, found: Entries, offset: int, key: bytes, at_ms: int, out: RecordBatch
    ) -> None:
        """Pair a record of one side with entries of the other; the policy sees to the pair that fails, and no other."""
        pairs, failed = self._guard.each(
            self._pairs(side, value, found),
            lambda row: next(self._pairs(side, value, found[row : row + 1])),
            [offset] * len(found),
        )
        size = LENGTH_BYTES + len(key)
        met = left_of(found, failed) if failed else found
        _append(out, offset, key, pairs, [max(at_ms, time_of(store_key, size)) for store_key, _ in met])

    def _pairs(self, side: bytes, value: Any, found: Entries) -> Iterator[Any]:
        if side == _LEFT_SIDE:
            return map(
                self._function, repeat(value), map(self._codecs[_RIGHT_SIDE].decode, map(_DATA, found))
            )
        return map(self._function, map(self._codecs[_LEFT_SIDE].decode, map(_DATA, found)), repeat(value))

    def _encoded(self, side: bytes, batch: RecordBatch) -> Sequence[bytes | None]:
        """The values' bytes; None where that is left to the record, which may have none or fail."""
        try:
            return self._codecs[side].encode_many(batch.values)
        except EncodeError:
            return [None] * len(batch)

    def _event_times_ms(self, batch: RecordBatch) -> Sequence[int]:
        """How far each row moves event time at this step, as far as somebody asks."""
        reached_ms, others_ms = self._reached_ms, self._stage.others_ms
        if self._unmatched is None or others_ms <= reached_ms:
            return [reached_ms] * len(batch)
        return [max(reached_ms, min(mark_ms, others_ms)) for mark_ms in marks_of(batch)]

    def _pass_on_over_of(
        self, unmatched: Unmatched, key: bytes, prefix: bytes, reached_ms: int, out: RecordBatch
    ) -> None:
        for entry, side in unmatched.over_of(prefix, reached_ms):
            store_key = prefix + entry
            unmatched.discard(prefix, side, store_key)
            data = self._sides[side].get(prefix, store_key)
            assert data is not None, "what is unmatched is there"
            self._pass_on_alone(key, side, time_of(entry), data, out)

    # --- time -------------------------------------------------------------------------------------------

    def advance(self, watermark_ms: int) -> bool:
        """Pass on and forget what is over, a bounded number; True when more is."""
        self._reached_ms = watermark_ms
        self._delete_former_timers()
        if not self._may_be_over(watermark_ms):
            return False
        out = RecordBatch(self._source, [], [], [], [])
        turn = Turn(self._stage.clock, self._written, _ENTRIES_PER_TURN)
        while self._may_be_over(watermark_ms):
            if turn.is_over(self._close(watermark_ms, out)):
                break
        self.forward(out)
        return self._may_be_over(watermark_ms)

    def _may_be_over(self, reached_ms: int) -> bool:
        return any(side.may_be_over(reached_ms) for side in self._sides.values())

    def _close(self, reached_ms: int, out: RecordBatch) -> int:
        """Some entries of both sides are over: their rows without a partner come in the order of time."""
        closed = 0
        alone: list[tuple[bytes, bytes, bytes, bytes]] = []
        for name, side in self._sides.items():
            over = side.take_over(reached_ms, _CHUNK_ENTRIES)
            if self._unmatched is not None:  # of both sides, as the join may have been an outer one
                for store_key in self._unmatched.taken(name, over):
                    data = side.store.get(store_key)
                    assert data is not None, "what is unmatched is there"
                    key_end = prefix_bytes(store_key)
                    alone.append((store_key[key_end:], name, store_key[LENGTH_BYTES:key_end], data))
            side.store.delete_many(over)
            closed += len(over)
        for entry, name, key, data in sorted(alone):
            self._pass_on_alone(key, name, time_of(entry), data, out)
        return closed

    def _pass_on_alone(self, key: bytes, side: bytes, at_ms: int, data: bytes, out: RecordBatch) -> None:
        """The others must not be undone with one that fails: nothing would call for them again."""
        results: list[Any] = []
        if self._guard.run(partial(self._alone, results, key, side, data), NO_OFFSET):
            _append(out, NO_OFFSET, key, results, [at_ms])

    def _alone(self, results: list[Any], key: bytes, side: bytes, data: bytes) -> None:
        value = self._codecs[side].decode(data)
        try:
            pair = (value, None) if side == _LEFT_SIDE else (None, value)
            results.append(self._function(*pair))
        except Exception as cause:
            if self._guard.lets_go or isinstance(cause, StateflowError):
                raise  # a dead letter names the function's own error
            name = "left" if side == _LEFT_SIDE else "right"
            raise ProcessingError(
                f"a {name} record of the key {self._key_codec.decode(key)!r} without a partner:"
                f" {type(cause).__name__}: {cause}",
                action="Correct the function, or give the step on_error=Skip() or DeadLetter(topic).",
            ) from cause

    @property
    def is_timed(self) -> bool:
        """Records wait until their interval is over."""
        return True

    def pending_until_ms(self) -> int:
        """When the last interval is over."""
        return max(side.until_ms() for side in self._sides.values())

    def _delete_former_timers(self) -> None:
        """Joins had a timer per key once: where one ran then, these are left, and are deleted in turns."""
        if self._former_timers is None:
            return
        found = self._former_timers.range(b"", None, _CHUNK_ENTRIES)
        if found:
            self._former_timers.delete_many([key for key, _ in found])
        else:
            self._former_timers = None


def _append(out: RecordBatch, offset: int, key: bytes, values: list[Any], times_ms: list[int]) -> None:
    out.values += values
    out.timestamps_ms += times_ms
    if len(values) == 1:
        out.offsets.append(offset)
        out.keys.append(key)
    else:
        out.offsets += [offset] * len(values)
        out.keys += [key] * len(values)
