"""An aggregate per key and session.

A session is stored under its key and start, its end before the accumulator: a record that only prolongs it changes one
entry. What is late goes by record and mark alone (``windows.Session``): an accepted record never touches a session that
is closed, so sessions are the same however partitions are interleaved, and batches cut.

On update, a session that another record prolongs, or connects with others, gets a result under its new start and end,
and what was told under the former ones is withdrawn by a row without a value, as in Kafka Streams. Such rows reach
output topics, as tombstones; functions of the value are spared them.

The derived order may hold earlier ends than sessions have: putting one off changes nothing there. One that is found to
be due is compared with its session.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from stateflow.changelog.event_time import UNKNOWN_MS
from stateflow.codec.timed import time_of
from stateflow.codec.windowed import session_suffix
from stateflow.operators.aggregates.stamped_accumulators import StampedAccumulators
from stateflow.operators.steps import timers as timing
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.error_policy import LatePolicy
from stateflow.operators.steps.failed_results import forward_failed
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import NO_OFFSET, derived, left_of
from stateflow.operators.steps.step import Step
from stateflow.operators.steps.timers import Turn
from stateflow.operators.topics.tombstones import forward_sparing
from stateflow.operators.windows.sessions import KeySessions, LiveSession
from stateflow.operators.windows.window_entry import Entry
from stateflow.operators.windows.windows import Emit, Session
from stateflow.record import RecordBatch
from stateflow.state.due_order import Due, WindowOrder
from stateflow.state.layout import split_window, window_key
from stateflow.store.base import Change, StateStore
from stateflow.store.derived import index_family

_NEAR_SESSIONS = 64
"""Sessions of a key that are simply all read."""


@dataclass(frozen=True, slots=True)
class SessionRules:
    """When a session takes records, speaks, and goes."""

    window: Session
    emit: Emit
    late: LatePolicy
    retention_ms: int
    """State is deleted when event time is further past a session's end than gap and this."""


@dataclass(slots=True)
class _Told:
    """What a batch says about sessions, in columns."""

    rows: list[int]
    keys: list[bytes]
    times_ms: list[int]
    results: list[Any]


class SessionStep(Step):
    """One accumulator per key and session. Results: key bytes ‖ end ‖ start as key, the end as time."""

    def __init__(
        self,
        name: str,
        rules: SessionRules,
        accumulators: StampedAccumulators,
        context: StageContext,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._name = name
        self._rules = rules
        self._gap_ms = rules.window.gap_ms
        self._accumulators = accumulators
        self._context = context
        self._guard = guard
        self._store: StateStore = context.store(name)
        order = context.store(index_family(name))
        self._order = WindowOrder(order)
        self._written = (self._store, order)
        self._entry = Entry(name, rules.window, rules.late, context, guard)

    def process(self, batch: RecordBatch) -> None:
        """Put each record into its session, a key's records in their order."""
        batch = self._entry.in_time(batch)
        rows_of: dict[bytes, list[int]] = {}
        for row, key in enumerate(batch.keys):
            rows_of.setdefault(key, []).append(row)
        told, failed = _Told([], [], [], []), _Told([], [], [], [])
        is_told = self._rules.emit == "on_update" and bool(self.children)
        for key in sorted(rows_of):
            try:
                changed = self._updated(key, self._folded(key, rows_of[key], batch))
            except Exception:  # noqa: BLE001 - comes up again at the record that causes it
                changed = self._updated(key, self._folded_one_by_one(key, rows_of[key], batch))
            if is_told:
                self._say(key, changed, batch, told, failed)
        if is_told:
            forward_sparing(self, _as_rows(told, batch))
            forward_failed(self, _as_rows(failed, batch))

    needs_turns = False

    def advance(self, watermark_ms: int) -> bool:
        """Close, and drop what is past retention, a bounded number; True when more are due."""
        self._entry.reached_ms = watermark_ms
        due_ms = watermark_ms - self._gap_ms - self._rules.retention_ms - 1
        if due_ms < 0 or not self._order.may_be_due(due_ms):
            return False
        turn = Turn(self._context.clock, self._written, timing.WINDOWS_PER_TURN)
        while sessions := self._order.take_until(due_ms, timing.WINDOWS_PER_CHUNK):
            self._close(sessions, due_ms)
            if turn.is_over(len(sessions)):
                break
        return self._order.may_be_due(due_ms)

    @property
    def is_timed(self) -> bool:
        """Sessions wait for their end."""
        return True

    def pending_until_ms(self) -> int:
        """When the last session takes no more records."""
        last_ms = max((time_of(data) for _, data in self._store.scan()), default=UNKNOWN_MS)
        waits_ms = self._gap_ms + self._rules.window.grace_ms + 1
        return UNKNOWN_MS if last_ms == UNKNOWN_MS else last_ms + waits_ms

    # --- records ----------------------------------------------------------------------------------------

    def _folded(self, key: bytes, rows: list[int], batch: RecordBatch) -> KeySessions:
        sessions = self._sessions(key, [batch.timestamps_ms[row] for row in rows])
        for row in rows:
            sessions.add(row, batch.timestamps_ms[row], batch.values[row])
        return sessions

    def _folded_one_by_one(self, key: bytes, rows: list[int], batch: RecordBatch) -> KeySessions:
        """The slow way after a failure: each record is in whole or not at all."""
        sessions = self._sessions(key, [batch.timestamps_ms[row] for row in rows])
        for row in rows:
            add = partial(sessions.add, row, batch.timestamps_ms[row], batch.values[row], copied=True)
            self._guard.run(add, batch.offsets[row])
        return sessions

    def _sessions(self, key: bytes, times_ms: list[int]) -> KeySessions:
        """The stored sessions that records of these times may touch."""
        first_ms, last_ms = max(0, min(times_ms) - self._gap_ms), max(times_ms) + self._gap_ms
        found = []
        for store_key, data in self._near(key, first_ms, last_ms):
            start_ms = split_window(store_key)[1]
            end_ms, accumulator = self._accumulators.decoded(data)
            if end_ms >= first_ms:
                found.append(LiveSession(start_ms, end_ms, accumulator, found=((start_ms, end_ms),)))
        return KeySessions(self._gap_ms, self._accumulators, found)

    def _near(self, key: bytes, first_ms: int, last_ms: int) -> list[tuple[bytes, bytes]]:
        """The key's sessions that begin up to the last time: all of them, or from some before the first time on."""
        after = window_key(key, last_ms + 1)
        found = self._store.range(window_key(key, 0), after, _NEAR_SESSIONS)
        back_ms = self._gap_ms
        while len(found) == _NEAR_SESSIONS:  # more of them: go back until there is one that begins before
            begin_ms = max(0, first_ms - back_ms)
            found = list(self._store.scan(window_key(key, begin_ms), after))
            own = [entry for entry in found if split_window(entry[0])[0] == key]
            if begin_ms == 0 or (own and split_window(own[0][0])[1] < first_ms):
                return own
            found, back_ms = [(b"", b"")] * _NEAR_SESSIONS, back_ms * 4
        return [entry for entry in found if split_window(entry[0])[0] == key]

    def _updated(self, key: bytes, sessions: KeySessions) -> list[LiveSession]:
        """Write what has changed of one key, and return it; fails before it does anything."""
        changed = list(sessions.changed())
        changes: dict[bytes, bytes | None] = {}
        opened: list[Due] = []
        for session in changed:
            for start_ms, _ in session.found:
                changes.setdefault(window_key(key, start_ms), None)
            store_key = window_key(key, session.start_ms)
            changes[store_key] = self._accumulators.encoded(session.end_ms, session.accumulator)
            if session.start_ms not in [start_ms for start_ms, _ in session.found]:
                opened.append((session.end_ms, store_key))
        self._store.put_many(sorted(changes.items(), key=_store_key))
        self._order.add(opened)
        return changed

    def _say(
        self, key: bytes, changed: list[LiveSession], batch: RecordBatch, told: _Told, failed: _Told
    ) -> None:
        """Note what is to be said of one key. A result that fails is not said, and the record stays in its session."""
        offsets = [batch.offsets[session.row] for session in changed]
        accumulators = [session.accumulator for session in changed]
        shown, failed_rows = self._guard.map(self._accumulators.result, accumulators, offsets)
        results = iter(shown)
        for row, session in enumerate(changed):
            span_ms = (session.start_ms, session.end_ms)
            for former_ms in session.found:
                if former_ms != span_ms:
                    _note(told, session.row, key, former_ms, None)
            if row in failed_rows:
                _note(failed, session.row, key, span_ms, None)
            else:
                _note(told, session.row, key, span_ms, next(results))

    # --- closing ----------------------------------------------------------------------------------------

    def _close(self, due: list[Due], due_ms: int) -> None:
        """Close those whose end it is; of the others note the end that they have."""
        ends_ms = {store_key: end_ms for end_ms, store_key in due}  # the latest of each
        store_keys = list(ends_ms)
        closing: list[tuple[int, bytes, bytes]] = []
        later: list[Due] = []
        for store_key, data in zip(store_keys, self._store.get_many(store_keys), strict=True):
            if data is None:
                continue  # it was connected with one that begins earlier
            if time_of(data) > ends_ms[store_key]:
                later.append((time_of(data), store_key))
            else:
                closing.append((time_of(data), store_key, data))
        if any(end_ms <= due_ms for end_ms, _ in later):  # these may come before some that would close now
            later += [(end_ms, store_key) for end_ms, store_key, _ in closing]
            closing = []
        self._order.add(later)
        self._tell_closed(sorted(closing))
        gone: list[Change] = [(store_key, None) for _, store_key, _ in closing]
        self._store.put_many(sorted(gone, key=_store_key))

    def _tell_closed(self, closing: list[tuple[int, bytes, bytes]]) -> None:
        if self._rules.emit != "on_close" or not closing or not self.children:
            return
        held = [data for _, _, data in closing]
        results, failed = self._guard.map(self._result, held, [NO_OFFSET] * len(held))
        keys, times_ms = [], []
        for end_ms, store_key, _ in left_of(closing, failed):
            key, start_ms = split_window(store_key)
            keys.append(key + session_suffix(start_ms, end_ms))
            times_ms.append(end_ms)
        forward_sparing(self, derived(self._name, self._context.partition, times_ms, keys, results))

    def _result(self, data: bytes) -> Any:
        return self._accumulators.result(self._accumulators.decoded(data)[1])


def _note(told: _Told, row: int, key: bytes, span_ms: tuple[int, int], result: Any) -> None:
    start_ms, end_ms = span_ms
    told.rows.append(row)
    told.keys.append(key + session_suffix(start_ms, end_ms))
    told.times_ms.append(end_ms)
    told.results.append(result)


def _store_key(change: Change) -> bytes:
    return change[0]


def _as_rows(told: _Told, batch: RecordBatch) -> RecordBatch:
    offsets = [batch.offsets[row] for row in told.rows]
    return RecordBatch(batch.source, offsets, told.times_ms, list(told.keys), told.results)
