"""The accumulators of a store with a time to live: a key of which nothing has come for so long begins anew.

Records of one batch are judged as if each had come alone: where between two of a key's records its accumulator
expired, the later ones are folded into a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.timed import NEVER_MS
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.operators.aggregates.aggregation import Accumulators, Updated
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.marks import marks_of
from stateflow.operators.steps.rows import where
from stateflow.record import RecordBatch
from stateflow.state.expiry import Expiry
from stateflow.store.base import StateStore

_Entry = tuple[int, bytes, bytes | None, Any, bool]
"""One row of what was updated, its columns in the order of ``Updated``."""


class ExpiringAccumulators(Accumulators):
    """``Accumulators`` that stand behind the event time of their newest record, and expire."""

    def __init__(
        self,
        aggregate: Aggregate[Any, Any, Any],
        codec: Codec[Any],
        store: StateStore,
        guard: Guard,
        ttl_ms: int,
        reached_ms: int,
    ) -> None:
        super().__init__(aggregate, codec, store, guard)
        self._ttl_ms = ttl_ms
        self._reached_ms = reached_ms
        """Event time as the step was told of it: up to there the expired may have been deleted."""
        self._expiry = Expiry(store, ttl_ms)
        self._life: tuple[Sequence[bytes], RecordBatch]
        """What is being folded."""

    def advance(self, watermark_ms: int) -> None:
        """Delete what has expired."""
        self._reached_ms = watermark_ms
        self._expiry.advance(watermark_ms)

    def fold(self, store_keys: Sequence[bytes], batch: RecordBatch) -> Updated:
        """Fold, each life of an accumulator after the one before it."""
        if len(batch):
            self._expiry.look_near(store_keys[self._reached_ms % len(batch)])
        lives = self._lives(store_keys, batch)
        if len(lives) <= 1:
            return self._fold_life(store_keys, batch)
        return self._fold_lives(lives, store_keys, batch)

    def _fold_life(self, store_keys: Sequence[bytes], batch: RecordBatch) -> Updated:
        self._life = (store_keys, batch)
        return super().fold(store_keys, batch)

    def _fold_lives(
        self, lives: Sequence[Sequence[int]], store_keys: Sequence[bytes], batch: RecordBatch
    ) -> Updated:
        newest: dict[bytes, _Entry] = {}
        for rows in lives:
            kept = set(rows)
            part = where(batch, [row in kept for row in range(len(batch))])
            updated = self._fold_life([store_keys[row] for row in rows], part)
            newest |= _entries(updated, rows)
        columns = zip(*(newest[key] for key in sorted(newest)), strict=True)
        return Updated(*map(list, columns)) if newest else Updated([], [], [], [], [])

    def _lives(self, store_keys: Sequence[bytes], batch: RecordBatch) -> list[Sequence[int]]:
        """The rows in groups: within none of them a key expires, and each key's rows are in their order."""
        times_ms, marks_ms = batch.timestamps_ms, marks_of(batch)
        if not times_ms or max(self._reached_ms, max(marks_ms)) < min(times_ms) + self._ttl_ms:
            return [range(len(batch))]
        lives: list[list[int]] = []
        newest: dict[bytes, tuple[int, int]] = {}
        for row, (key, when_ms, mark_ms) in enumerate(zip(store_keys, times_ms, marks_ms, strict=True)):
            life, gone_ms = newest.get(key, (0, NEVER_MS))
            if gone_ms <= max(mark_ms, self._reached_ms):
                life += 1
            newest[key] = (life, when_ms + self._ttl_ms)
            if life == len(lives):
                lives.append([])
            lives[life].append(row)
        return list(lives)

    def _read(self, ordered: Sequence[bytes]) -> list[bytes | None]:
        store_keys, batch = self._life
        marks_ms, reached_ms, live = marks_of(batch), self._reached_ms, self._expiry.live
        stored, furthest_ms = super()._read(ordered), max([reached_ms, *marks_ms])
        found = [live(data, furthest_ms) for data in stored]
        if found.count(None) == stored.count(None):
            return found  # the usual case: none has expired even by the end
        first_ms = dict(zip(reversed(store_keys), reversed(marks_ms), strict=True))
        pairs = zip(ordered, stored, strict=True)
        return [live(data, max(reached_ms, first_ms[key])) for key, data in pairs]

    def _folded_one_by_one(
        self,
        ordered: Sequence[bytes],
        store_keys: Sequence[bytes],
        before: Sequence[bytes | None],
        batch: RecordBatch,
    ) -> Updated:
        """Each row on its own: one that is let go does not keep its key alive for the next."""
        if len(batch) == 1:
            return super()._folded_one_by_one(ordered, store_keys, before, batch)
        return self._fold_lives([[row] for row in range(len(batch))], store_keys, batch)

    def _write(self, updated: Updated, batch: RecordBatch) -> None:
        stamped = self._expiry.stamped
        times_ms = [batch.timestamps_ms[row] for row in updated.rows]
        data = [
            None if each is None else stamped(each, when)
            for each, when in zip(updated.data, times_ms, strict=True)
        ]
        self.store.put_many(list(zip(updated.store_keys, data, strict=True)))


def _entries(updated: Updated, rows: Sequence[int]) -> dict[bytes, _Entry]:
    """What was updated by store key, with the rows of the whole batch."""
    columns = zip(
        updated.rows, updated.store_keys, updated.data, updated.results, updated.is_new, strict=True
    )
    return {entry[1]: (rows[entry[0]], *entry[1:]) for entry in columns}
