"""The accumulators of a window store whose changelog is *eventual*: each says how far the input is contained in it.

A restore finds windows as they stood at different places of the input, and replays the input from the earliest of
them. A record that a window already contains is passed over, by the offset that the window carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stateflow.changelog.eventual import EventualChangelog
from stateflow.codec.base import Codec
from stateflow.codec.offset_stamped import COVER_BYTES, cover, covered_next
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.operators.aggregates.aggregation import Accumulators, Updated
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import where
from stateflow.record import RecordBatch
from stateflow.store.base import StateStore


class EventualAccumulators(Accumulators):
    """``Accumulators`` that cover their values, and tell the changelog what they change."""

    def __init__(
        self,
        aggregate: Aggregate[Any, Any, Any],
        codec: Codec[Any],
        store: StateStore,
        guard: Guard,
        changelog: EventualChangelog,
    ) -> None:
        super().__init__(aggregate, codec, store, guard)
        self._changelog = changelog
        self._contained_next: dict[bytes, int] = {}
        """During a replay: how much each window that it met contained before."""
        changelog.restored(key for key, _ in store.scan())

    @property
    def is_replaying(self) -> bool:
        """True while a task is opened."""
        return self._changelog.is_replaying

    def _result(self, data: bytes) -> Any:
        return super()._result(data[COVER_BYTES:])

    def _fold(self, store_keys: Sequence[bytes], batch: RecordBatch, *, by_policy: bool) -> Updated:
        """Fold what is not contained yet. Every touched window counts as changed: its log record may be older."""
        self._changelog.changed(dict.fromkeys(store_keys), len(batch))
        if not self._changelog.is_replaying:
            self._contained_next.clear()
            return super()._fold(store_keys, batch, by_policy=by_policy)
        rows = self._not_contained(store_keys, batch.offsets)
        kept = set(rows)
        rest = where(batch, [row in kept for row in range(len(batch))])
        updated = super()._fold([store_keys[row] for row in rows], rest, by_policy=by_policy)
        return replace(updated, rows=[rows[row] for row in updated.rows])

    def _not_contained(self, store_keys: Sequence[bytes], offsets: Sequence[int]) -> list[int]:
        """Rows that their windows do not contain yet."""
        contained = self._contained_next
        unmet = [key for key in dict.fromkeys(store_keys) if key not in contained]
        for key, data in zip(unmet, self.store.get_many(unmet), strict=True):
            contained[key] = 0 if data is None else covered_next(data, self._changelog.log)
        placed = enumerate(zip(store_keys, offsets, strict=True))
        return [row for row, (key, offset) in placed if offset >= contained[key]]

    def _read(self, ordered: Sequence[bytes]) -> list[bytes | None]:
        stored = super()._read(ordered)
        return [None if data is None else data[COVER_BYTES:] for data in stored]

    def _write(self, updated: Updated, batch: RecordBatch) -> None:
        log, offsets = self._changelog.log, batch.offsets
        covered = [
            None if data is None else cover(data, log, offsets[row] + 1)
            for data, row in zip(updated.data, updated.rows, strict=True)
        ]
        self.store.put_many(list(zip(updated.store_keys, covered, strict=True)))
