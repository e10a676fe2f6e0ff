"""The accumulators of a store with a time to live: a key of which nothing has come for so long begins anew.

Records of one batch are judged as if each had come alone: where between two of a key's records its accumulator
expired, the later ones are folded into a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateflow.codec.base import Codec
from stateflow.codec.timed import time_of
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
    """``Accumulators`` that stand behind the latest event time of their records, and expire."""

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
        self._written_ms: dict[bytes, int] = {}
        """When what it is folded into was written, by key; what has expired is not among it."""

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
            life, gone_ms = newest.get(key, (0, when_ms + self._ttl_ms))
            if key in newest and gone_ms <= max(mark_ms, self._reached_ms):
                life, gone_ms = life + 1, when_ms + self._ttl_ms
            newest[key] = (life, max(gone_ms, when_ms + self._ttl_ms))
            if life == len(lives):
                lives.append([])
            lives[life].append(row)
        return list(lives)

    def _read(self, ordered: Sequence[bytes]) -> list[bytes | None]:
        store_keys, batch = self._life
        marks_ms, reached_ms, live = marks_of(batch), self._reached_ms, self._expiry.live
        stored, furthest_ms = super()._read(ordered), max([reached_ms, *marks_ms])
        found = [live(data, furthest_ms) for data in stored]
        if found.count(None) != stored.count(None):  # mostly none has expired even by the end
            first_ms = dict(zip(reversed(store_keys), reversed(marks_ms), strict=True))
            pairs = zip(ordered, stored, strict=True)
            found = [live(data, max(reached_ms, first_ms[key])) for key, data in pairs]
        self._written_ms = _times(
            ordered, [None if each is None else s for each, s in zip(found, stored, strict=True)]
        )
        return found

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
        updated = self._fold_lives([[row] for row in range(len(batch))], store_keys, batch)
        # All of it is written by now. What is written once more is stamped as it stands, and not by rows let go.
        self._life = ([], batch)
        self._written_ms = _times(updated.store_keys, self.store.get_many(updated.store_keys))
        return updated

    def _write(self, updated: Updated, batch: RecordBatch) -> None:  # noqa: ARG002 - all that was folded stamps it
        stamped, (store_keys, folded), written_ms = self._expiry.stamped, self._life, self._written_ms
        if store_keys:
            for key, when_ms in zip(store_keys, folded.timestamps_ms, strict=True):
                if written_ms.get(key, when_ms) <= when_ms:
                    written_ms[key] = when_ms
        data = [
            None if each is None else stamped(each, written_ms[key])
            for key, each in zip(updated.store_keys, updated.data, strict=True)
        ]
        self.store.put_many(list(zip(updated.store_keys, data, strict=True)))


def _times(store_keys: Sequence[bytes], stored: Sequence[bytes | None]) -> dict[bytes, int]:
    return {key: time_of(data) for key, data in zip(store_keys, stored, strict=True) if data is not None}


def _entries(updated: Updated, rows: Sequence[int]) -> dict[bytes, _Entry]:
    """What was updated by store key, with the rows of the whole batch."""
    columns = zip(
        updated.rows, updated.store_keys, updated.data, updated.accumulators, updated.is_new, strict=True
    )
    return {entry[1]: (rows[entry[0]], *entry[1:]) for entry in columns}
