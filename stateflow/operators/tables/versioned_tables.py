"""Tables with a history: what a key's value was at any event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.change import Change
from stateflow.codec.timed import Timed
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of
from stateflow.operators.steps.rows import with_values, without, without_headers
from stateflow.operators.steps.step import Step
from stateflow.operators.tables.table_steps import real_changes
from stateflow.record import RecordBatch, TopicPartition
from stateflow.state.scope import Scope
from stateflow.state.versioned import HistoryExpiry, Retention, Versioned
from stateflow.store.base import StateStore


class VersionedTableStep(Step):
    """Keeps the values of each key with the times from which they hold. Passes on the changes of the newest.

    The newest is the one of the latest event time. What comes with an earlier one takes its place in the history, and
    changes nothing that is. What is too late to be kept is left out and counted.
    """

    takes_tombstones = True

    def __init__(
        self, value: Codec[Any], retention: Retention, name: str, context: StageContext, guard: Guard
    ) -> None:
        super().__init__()
        store = context.store(name)
        self._scope = Scope()
        self._versions: Versioned[Any] = Versioned(store, self._scope, value, retention)
        self._expiry = HistoryExpiry(store, retention)
        self._guard = guard
        self._name = name
        self._context = context
        self._reached_ms = context.watermark_ms

    def process(self, batch: RecordBatch) -> None:
        """Write, and pass on what was and what is the newest."""
        batch = with_keys(batch, self._guard)
        times = (batch.timestamps_ms, marks_of(batch))
        rows = list(zip(batch.keys, batch.values, *times, batch.offsets, strict=True))
        changes, failed = self._guard.map(partial(self._changed, batch.source), rows, batch.offsets)
        self.forward(real_changes(with_values(without_headers(without(batch, failed)), changes)))

    def advance(self, watermark_ms: int) -> None:
        """Delete what no read may ask for any more."""
        self._reached_ms = watermark_ms
        self._expiry.advance(watermark_ms)

    def _changed(self, source: TopicPartition, row: tuple[bytes, Any, int, int, int]) -> Change[Any]:
        scope = self._scope
        scope.key, value, scope.timestamp_ms, scope.mark_ms, offset = row
        scope.reached_ms = self._reached_ms
        if scope.timestamp_ms < 0:
            raise ValueError("the record has no event time")
        if self._versions.is_too_late(scope.timestamp_ms):
            self._context.late(self._name, source, offset, scope.timestamp_ms, scope.as_of_ms)
            return Change(None, None)
        before = self._versions.version()
        self._versions.set(value)
        if before is not None and scope.timestamp_ms < before.at_ms:
            return Change(None, None)
        return Change(None if before is None else before.value, value)


@dataclass(frozen=True, slots=True)
class VersionedTable:
    """What stands in a store of versions; implements ``TableReader``."""

    store: StateStore
    value: Codec[Any]

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Versions are looked for one by one."""

    def get(self, key: bytes, as_of_ms: int) -> Timed[Any] | None:
        """The value that held at that time."""
        scope = Scope()
        scope.key = key
        versions = Versioned[Any](self.store, scope, self.value, _EVERYTHING)
        found = versions.version(as_of_ms)
        return None if found is None or found.value is None else Timed(found.at_ms, found.value)


_EVERYTHING = Retention(history_ms=None, max_versions=None, ttl_ms=None)
