"""Windows that tell at intervals, after a time, or within bounds: their changes are held back until then.

The aggregate works as it does on update; each result replaces the one that is held of its window. What was not told
when the window closes is told then. Held results are a store of their own, ``<name>-held``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.held import HeldCodec
from stateflow.codec.infer import codec_or_none, result_type
from stateflow.codec.structured import Plain
from stateflow.codec.windowed import WindowKeyCodec
from stateflow.errors import GraphError
from stateflow.operators.classes.every import Every
from stateflow.operators.stateful.hold_step import DueOf, HoldRules, HoldStep, held_entry
from stateflow.operators.stateful.limits import OnClose, TimeLimit, bounds_of
from stateflow.operators.stateful.stateful import Stateful
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topology.graph import Graph, Node
from stateflow.operators.windows.windows import (
    CountWindow,
    Delayed,
    FixedWindow,
    Session,
    Sliding,
    TimeWindow,
)
from stateflow.record import RecordBatch
from stateflow.state.due_order import WindowsByStamp

_START = struct.Struct(">q")
_ENDS = struct.Struct(">qq")

CloseOf = Callable[[bytes], int]
"""What the key of a window's result has behind the routing key → the event time at which it is closed."""


class HeldWindowsStep(HoldStep):
    """A windowed step, which tells on update, and what holds back what it tells: one step to those around it."""

    def __init__(self, windows: Step, rules: HoldRules, context: StageContext, guard: Guard) -> None:
        super().__init__(rules, context, guard)
        self.takes_tombstones = windows.takes_tombstones
        self._windows = windows
        windows.children.append(_Results(self._take))
        self._dues_from_ms: dict[int, int] = {}
        """By offset of the batch at work: the event time behind which what its record changes is due."""
        self._before_ms = UNKNOWN_MS
        """Event time as it is with the first record of the batch."""

    def process(self, batch: RecordBatch) -> None:
        """Aggregate, and hold what comes of it."""
        others_ms, reached_ms, dues_from_ms = self._context.others_ms, self._reached_ms, self._dues_from_ms
        marks_ms = marks_of(batch)
        events_ms = [max(reached_ms, min(mark_ms, others_ms)) for mark_ms in marks_ms]
        for offset, mark_ms, event_ms in zip(batch.offsets, marks_ms, events_ms, strict=True):
            # Before anything is known of event time, as behind a re-key step, there are only the records' own marks.
            from_ms = event_ms if event_ms >= 0 else mark_ms
            dues_from_ms[offset] = max(dues_from_ms.get(offset, UNKNOWN_MS), from_ms)
        self._before_ms = min(events_ms)
        self._windows.process(batch)
        self.make_room(max(events_ms))
        self.pass_on()
        dues_from_ms.clear()

    def advance(self, watermark_ms: int) -> bool:
        """Tell what is due, and drop the state of windows that closed, a bounded number of each."""
        is_left = bool(self._windows.advance(watermark_ms))
        return super().advance(watermark_ms) or is_left

    def pending_until_ms(self) -> int:
        """When the last window takes no more records, and the last result is told."""
        return max(super().pending_until_ms(), self._windows.pending_until_ms())

    def _take(self, results: RecordBatch) -> None:
        """A result stands where the newest record that changed it stood, so it came at the event time of that.

        Records before that may have changed or withdrawn what is held, so of that only what was due with the first
        record of the batch is told.
        """
        events_ms = [self._dues_from_ms[offset] for offset in results.offsets]
        self.hold_together(results, events_ms, self._before_ms)


class _Results(Step):
    """What stands behind the windows: those of sessions withdraw results by rows without a value."""

    takes_tombstones = True
    takes_failed = True

    def __init__(self, take: Callable[[RecordBatch], None]) -> None:
        super().__init__()
        self._take = take

    def process(self, batch: RecordBatch) -> None:
        """Hand on."""
        self._take(batch)


def held_windows_node(
    graph: Graph, node: Node, window: TimeWindow | CountWindow, emit: Delayed, spec: Stateful
) -> Node:
    """The node of windows that tell on update, with what they tell held back as ``emit`` says."""
    closes_ms = None if isinstance(window, CountWindow) else _closes_of(window)
    _check(node.name, emit, has_end=closes_ms is not None)
    store = graph.claim("store", f"{node.name}-held")
    assert isinstance(node.key, WindowKeyCodec), "what windows tell has such keys"
    (windows,) = node.stores
    is_session = isinstance(window, Session)
    rules = HoldRules(
        store=store,
        codec=HeldCodec(node.value or codec_or_none(result_type(spec.aggregate.result), "msgpack") or Plain),
        due_ms=_due_of(emit, closes_ms),
        bounds=bounds_of(emit),
        suffix_bytes=node.key.suffix_bytes,
        has_deletions=is_session,
        withdrawn_until_ms=closes_ms if is_session else None,
    )

    def make(env: Environment) -> Step:
        return HeldWindowsStep(node.make(env), rules, env.context, env.guard(node.name, spec.on_error))

    # A result of windows in event time is told when they close at the latest, which they account for themselves.
    held = held_entry(rules, windows.key_codec, 0 if closes_ms is not None else _longest_ms(emit))
    indexes = {**node.indexes, store: WindowsByStamp}
    return replace(node, make=make, stores=(windows, held), indexes=indexes)


def _check(name: str, emit: Delayed, *, has_end: bool) -> None:
    if isinstance(emit, Every) and emit.time != "event":
        raise GraphError(
            f"The window {name!r} is to tell at intervals of processing time.",
            action="Give sf.Every(interval): windows close by event time, and what they tell goes by it.",
        )
    if isinstance(emit, OnClose) and not has_end:
        raise GraphError(
            f"The window {name!r} is one of records, which has no end in time to be held back for.",
            action="Give emit='on_close': it is told by the record that fills it.",
        )


def _due_of(emit: Delayed, closes_ms: CloseOf | None) -> DueOf:
    """When a result is due that changed: at the tick, or after the limit, or when its window closes before that."""
    waits = _wait_of(emit)
    if closes_ms is None:
        return lambda _suffix, _time_ms, event_ms: waits(event_ms)
    if isinstance(emit, OnClose):
        return lambda suffix, _time_ms, _event_ms: closes_ms(suffix)
    return lambda suffix, _time_ms, event_ms: min(waits(event_ms), closes_ms(suffix))


def _wait_of(emit: Delayed) -> Callable[[int], int]:
    if isinstance(emit, Every):
        return emit.next_ms
    limit_ms = _longest_ms(emit)
    return lambda event_ms: event_ms + limit_ms


def _longest_ms(emit: Delayed) -> int:
    """How long a result may be held back where no window closes."""
    match emit:
        case Every():
            return emit.interval_ms
        case TimeLimit():
            return emit.limit_ms
        case _:
            return 0


def _closes_of(window: TimeWindow) -> CloseOf:
    """When the windows of a kind are closed (``docs/windows.md`` has the table)."""
    grace_ms = window.grace_ms
    if isinstance(window, FixedWindow):
        end_ms = window.end_ms
        return lambda suffix: end_ms(_START.unpack(suffix)[0]) + grace_ms
    if isinstance(window, Session):
        waits_ms = window.gap_ms + grace_ms + 1
        return lambda suffix: int(_ENDS.unpack(suffix)[0]) + waits_ms
    assert isinstance(window, Sliding), "there are no others"
    lasts_ms = window.difference_ms + grace_ms + 1
    return lambda suffix: int(_START.unpack(suffix)[0]) + lasts_ms
