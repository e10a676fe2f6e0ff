"""Stream–stream joins: each record waits, in state, for those of the other stream within its interval.

Both sides of a key are maps from (time, number) to values. What has found no partner yet, and is to be passed on
without one, stands in a set beside them. One timer per key closes the intervals that are over, the oldest first: what
is unmatched then is passed on, once, and forgotten with the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.base import Codec
from stateflow.codec.scalar import Bytes
from stateflow.operators.classes.operator import Context, Operator, OperatorClass
from stateflow.operators.classes.operator_step import OperatorStep
from stateflow.operators.joins.intervals import Within
from stateflow.operators.order.event_time_buffer import (
    at_own_times,
    first_at,
    next_entry,
    ready_until,
    time_of,
)
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import LatePolicy
from stateflow.operators.steps.guard import Guard
from stateflow.operators.windows.lateness import GraceCheck
from stateflow.record import RecordBatch
from stateflow.state.declaration import state
from stateflow.state.layout import split_prefixed
from stateflow.state.mapof import MapOf
from stateflow.state.setof import SetOf

JoinKind = Literal["inner", "left", "outer"]
LEFT, RIGHT = "on_left", "on_right"
"""The handlers of the two inputs."""

_LEFT_SIDE, _RIGHT_SIDE = b"l", b"r"
_CLOSE = "close"


@dataclass(frozen=True, slots=True)
class IntervalRules:
    """What is joined with what."""

    name: str
    within: Within
    kind: JoinKind
    function: Callable[[Any, Any], Any]
    late: LatePolicy


class IntervalJoin(Operator[Any, Any, Any]):
    """Base of the operators of such joins: subclasses declare their state and rules."""

    rules: IntervalRules
    before_ms: int
    after_ms: int
    left_kept_ms: int
    right_kept_ms: int
    guard: Guard
    left: MapOf[bytes, Any]
    right: MapOf[bytes, Any]
    unmatched: SetOf[bytes] | None = None

    def on_left(self, value: Any, ctx: Context[Any]) -> None:
        """A record of the left stream: join it with the right ones that are there, and keep it."""
        at_ms = ctx.timestamp_ms
        found = _between(self.right, at_ms - self.before_ms, at_ms + self.after_ms)
        for entry, other in found:
            self._matched(_RIGHT_SIDE, entry)
            ctx.emit(self.rules.function(value, other), timestamp_ms=max(at_ms, time_of(entry)), headers=())
        self._keep(self.left, value, ctx, bool(found))

    def on_right(self, value: Any, ctx: Context[Any]) -> None:
        """A record of the right stream: the same the other way round."""
        at_ms = ctx.timestamp_ms
        found = _between(self.left, at_ms - self.after_ms, at_ms + self.before_ms)
        for entry, other in found:
            self._matched(_LEFT_SIDE, entry)
            ctx.emit(self.rules.function(other, value), timestamp_ms=max(at_ms, time_of(entry)), headers=())
        self._keep(self.right, value, ctx, bool(found))

    def on_timer(self, name: str, ctx: Context[Any]) -> None:  # noqa: ARG002 - it has but one
        """Intervals are over: pass on what is unmatched, forget what nothing can be joined with any more."""
        due_ms = ctx.timestamp_ms
        lefts, next_left_ms = ready_until(self.left, due_ms - self.left_kept_ms)
        rights, next_right_ms = ready_until(self.right, due_ms - self.right_kept_ms)
        over = [(*each, _LEFT_SIDE) for each in lefts] + [(*each, _RIGHT_SIDE) for each in rights]
        for entry, value, side in sorted(over, key=_entry_and_side):
            if self._matched(side, entry):
                pair = (value, None) if side == _LEFT_SIDE else (None, value)
                for joined in self.guard.one_of_several(self.rules.function, *pair):
                    ctx.emit(joined, timestamp_ms=time_of(entry))
            (self.left if side == _LEFT_SIDE else self.right).remove(entry)
        next_ms = [] if next_left_ms is None else [next_left_ms + self.left_kept_ms]
        next_ms += [] if next_right_ms is None else [next_right_ms + self.right_kept_ms]
        if next_ms:
            ctx.timer(_CLOSE, at=min(next_ms))

    def _keep(self, own: MapOf[bytes, Any], value: Any, ctx: Context[Any], is_matched: bool) -> None:
        at_ms, kind = ctx.timestamp_ms, self.rules.kind
        is_left = own is self.left
        entry = next_entry(own, at_ms)
        own.put(entry, value)
        if self.unmatched is not None and not is_matched and (is_left or kind == "outer"):
            self.unmatched.add((_LEFT_SIDE if is_left else _RIGHT_SIDE) + entry)
        due_ms = at_ms + (self.left_kept_ms if is_left else self.right_kept_ms)
        before_ms = ctx.timer_due_ms(_CLOSE)
        if before_ms is None or due_ms < before_ms:
            ctx.timer(_CLOSE, at=due_ms)

    def _matched(self, side: bytes, entry: bytes) -> bool:
        """An entry is unmatched no longer; False where it was not."""
        return self.unmatched is not None and self.unmatched.discard(side + entry)


def interval_operator(rules: IntervalRules, left: Codec[Any], right: Codec[Any]) -> type[IntervalJoin]:
    """The operator of a join, its states declared."""
    chosen, lefts, rights = rules, left, right

    class Inner(IntervalJoin):
        rules = chosen
        before_ms, after_ms = chosen.within.before_ms, chosen.within.after_ms
        left_kept_ms, right_kept_ms = chosen.within.left_kept_ms, chosen.within.right_kept_ms
        left: MapOf[bytes, Any] = state(codec=lefts, key_codec=Bytes)
        right: MapOf[bytes, Any] = state(codec=rights, key_codec=Bytes)

    if chosen.kind == "inner":
        return Inner

    class WithUnmatched(Inner):
        unmatched: SetOf[bytes] = state()

    return WithUnmatched


class IntervalJoinStep(OperatorStep):
    """Such an operator at work: late records are left out before it, and its rows are never late behind it."""

    takes_tombstones = False

    def __init__(
        self,
        declared: OperatorClass,
        rules: IntervalRules,
        key_codec: Codec[Any],
        stage: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__(declared, key_codec, stage, guard)
        assert isinstance(self._operator, IntervalJoin), "it is made for this step"
        self._operator.guard = guard
        self._lateness = GraceCheck(rules.name, rules.within.grace_ms, rules.late, stage, guard)
        self._context_of_stage = stage
        self._kept = {
            f"{rules.name}-left": rules.within.left_kept_ms,
            f"{rules.name}-right": rules.within.right_kept_ms,
        }

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Join the rows of one side that are in time."""
        super().process_from(handler, self._lateness.in_time(batch, self._reached_ms))

    def pending_until_ms(self) -> int:
        """When the last interval is over: a timer knows of the first of its key only."""
        until_ms = UNKNOWN_MS
        for name, kept_ms in self._kept.items():
            for store_key, _ in self._context_of_stage.store(name).scan(b"", None):
                until_ms = max(until_ms, time_of(split_prefixed(store_key)[1]) + kept_ms)
        return until_ms

    def _pass_on(self, out: RecordBatch) -> None:
        # Which of two records came second depends on how the inputs were read, and must not make their pair late.
        self.forward(at_own_times(out))


def _entry_and_side(each: tuple[bytes, Any, bytes]) -> tuple[bytes, bytes]:
    return each[0], each[2]


def _between(side: MapOf[bytes, Any], first_ms: int, last_ms: int) -> list[tuple[bytes, Any]]:
    return side.range(first_at(first_ms), first_at(last_ms + 1))
