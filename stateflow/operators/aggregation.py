"""Running an aggregate over batches: one lookup per distinct key, one write per changed key, sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stateflow.codec.base import Codec
from stateflow.operators.aggregates import Aggregate
from stateflow.operators.context import StageContext
from stateflow.operators.guard import Guard
from stateflow.operators.rows import without
from stateflow.operators.step import Step
from stateflow.record import RecordBatch
from stateflow.state.expiry import Expiry
from stateflow.store.base import StateStore

Group = tuple[int, Sequence[Any], Sequence[int]]
"""Newest row of a key in the batch, its values, their rows (none where only the number matters)."""


@dataclass(frozen=True, slots=True)
class Updated:
    """What a batch changed, sorted by store key."""

    rows: list[int]
    """Newest row that contributed to each."""
    store_keys: list[bytes]
    results: list[Any]
    is_new: list[bool]


class Accumulators:
    """The accumulators of one store and how they are folded."""

    def __init__(
        self,
        aggregate: Aggregate[Any, Any, Any],
        codec: Codec[Any],
        store: StateStore,
        guard: Guard,
        expiry: Expiry | None = None,
    ) -> None:
        self.store = store
        self.expiry = expiry
        self._aggregate = aggregate
        self._encode, self._decode = codec.encode, codec.decode
        self._guard = guard

    def result(self, data: bytes) -> Any:
        """What is shown of a stored accumulator."""
        return self._aggregate.result(self._decode(data))

    def fold(self, store_keys: Sequence[bytes], batch: RecordBatch, watermark_ms: int) -> Updated:
        """Fold a batch's values into the accumulators of their store keys."""
        groups = self._grouped(store_keys, batch.values)
        ordered = sorted(groups)
        updated = Updated([], [], [], [])
        changes: list[tuple[bytes, bytes | None]] = []
        for key, stored in zip(ordered, self.store.get_many(ordered), strict=True):
            before = stored if self.expiry is None else self.expiry.live(stored, watermark_ms)
            after = self._folded(before, groups[key], batch)
            if after is None:
                continue
            data, result, row = after
            if self.expiry is not None:
                data = self.expiry.stamped(data, batch.timestamps_ms[row])
            changes.append((key, data))
            updated.rows.append(row)
            updated.store_keys.append(key)
            updated.results.append(result)
            updated.is_new.append(before is None)
        self.store.put_many(changes)
        return updated

    def _grouped(self, store_keys: Sequence[bytes], values: Sequence[Any]) -> dict[bytes, Group]:
        newest = dict(zip(store_keys, range(len(store_keys)), strict=True))
        if self._aggregate.only_counts:
            counted = Counter(store_keys)
            return {key: (row, range(counted[key]), ()) for key, row in newest.items()}
        rows: dict[bytes, list[int]] = {key: [] for key in newest}
        for row, key in enumerate(store_keys):
            rows[key].append(row)
        return {key: (newest[key], [values[row] for row in own], own) for key, own in rows.items()}

    def _folded(
        self, before: bytes | None, group: Group, batch: RecordBatch
    ) -> tuple[bytes, Any, int] | None:
        newest, values, rows = group
        try:
            accumulator = self._start(before)
            accumulator = self._aggregate.add_many(accumulator, values)
            return self._encode(accumulator), self._aggregate.result(accumulator), newest
        except Exception:  # noqa: BLE001 - comes up again below, at the record that causes it
            return self._folded_one_by_one(before, rows or [newest], values, batch)

    def _start(self, before: bytes | None) -> Any:
        return self._aggregate.initial() if before is None else self._decode(before)

    def _folded_one_by_one(
        self, before: bytes | None, rows: Sequence[int], values: Sequence[Any], batch: RecordBatch
    ) -> tuple[bytes, Any, int] | None:
        """The slow way after a failure: each record is in whole or not at all.

        An accumulator that ``add`` left half changed is thrown away; the next record starts from bytes.
        """
        steps = [[value] for value in values] if len(rows) == len(values) else [values]
        done: list[tuple[bytes, Any, int]] = []

        def add(row: int, step: Sequence[Any]) -> None:
            accumulator = self._aggregate.add_many(self._start(done[-1][0] if done else before), step)
            done.append((self._encode(accumulator), self._aggregate.result(accumulator), row))

        for row, step in zip(rows, steps, strict=True):
            self._guard.run(lambda row=row, step=step: add(row, step), batch.offsets[row])  # type: ignore[misc]
        return done[-1] if done else None


class AggregateStep(Step):
    """One accumulator per key. Passes on each changed key's newest result, once per batch."""

    def __init__(self, accumulators: Accumulators, context: StageContext, guard: Guard) -> None:
        super().__init__()
        self._accumulators = accumulators
        self._context = context
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Fold, write, pass on."""
        batch = with_keys(batch, self._guard)
        updated = self._accumulators.fold(batch.keys, batch, self._context.watermark_ms)
        self.forward(result_rows(batch, updated.rows, updated.store_keys, updated.results))

    def advance(self, watermark_ms: int) -> None:
        """Delete expired accumulators."""
        if self._accumulators.expiry is not None:
            self._accumulators.expiry.advance(watermark_ms)


def with_keys(batch: RecordBatch, guard: Guard) -> RecordBatch:
    """The rows that have a key; the others follow the policy."""
    if None not in batch.keys:
        return batch
    keyless = [row for row, key in enumerate(batch.keys) if key is None]
    for row in keyless:
        guard.refuse(ValueError("the record has no key, and state is kept by key"), batch.offsets[row])
    return without(batch, keyless)


def result_rows(
    batch: RecordBatch, rows: Iterable[int], keys: list[bytes], results: list[Any]
) -> RecordBatch:
    """Results as rows that stand where the newest contributing record stood."""
    picked = list(rows)
    return RecordBatch(
        batch.source,
        [batch.offsets[row] for row in picked],
        [batch.timestamps_ms[row] for row in picked],
        list(keys),
        results,
    )
