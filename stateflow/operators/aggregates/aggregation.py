"""Running an aggregate over batches: one lookup per distinct key, one write per changed key, sorted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from stateflow.codec.base import Codec
from stateflow.operators.aggregates.aggregates import Aggregate, same
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.reads import Reads
from stateflow.operators.steps.rows import NO_OFFSET, left_of, without
from stateflow.operators.steps.step import Step
from stateflow.record import RecordBatch, has_none
from stateflow.store.base import StateStore
from stateflow.store.folded import OpenedWindows


@dataclass(frozen=True, slots=True)
class Updated:
    """What a batch changed, sorted by store key."""

    rows: list[int]
    """Newest row that contributed to each."""
    store_keys: list[bytes]
    data: list[bytes | None]
    """Their accumulators, encoded; None where only tombstones were seen. Empty where nobody encodes yet."""
    accumulators: list[Any]
    is_new: list[bool]


class Accumulators:
    """The accumulators of one store and how they are folded."""

    def __init__(
        self,
        aggregate: Aggregate[Any, Any, Any],
        codec: Codec[Any],
        store: StateStore,
        guard: Guard,
    ) -> None:
        self.store = store
        self._aggregate = aggregate
        self.codec = codec
        self._guard = guard

    @property
    def reads(self) -> Reads | None:
        """What is read of the values; None where that may be anything."""
        return self._aggregate.reads

    @property
    def is_replaying(self) -> bool:
        """True while they are computed again from input that was processed before; their results are dropped."""
        return False

    def results(self, store_keys: Sequence[bytes]) -> list[tuple[bytes, Any]]:
        """What is shown of the accumulators that there are, with their keys, in the order of the keys.

        No record stands behind them: a result that fails follows the policy without one, and is left out.
        """
        stored = zip(store_keys, self.store.get_many(store_keys), strict=True)
        return self._results([(key, data) for key, data in stored if data is not None], self._result)

    def _results(
        self, found: Sequence[tuple[bytes, Any]], result: Callable[[Any], Any]
    ) -> list[tuple[bytes, Any]]:
        offsets = [NO_OFFSET] * len(found)
        results, failed = self._guard.map(result, [each for _, each in found], offsets)
        return list(zip(left_of([key for key, _ in found], failed), results, strict=True))

    def shown(self, updated: Updated, batch: RecordBatch) -> tuple[list[Any], list[int]]:
        """What is shown of accumulators that a batch changed, and the places of those whose result fails.

        Such a result is let go, or not, as the failure of its newest record, which stays in the accumulator: whether a
        result is computed after a record depends on where batches end, and state must not.
        """
        if self._aggregate.result is same:
            return updated.accumulators, []
        offsets = [batch.offsets[row] for row in updated.rows]
        return self._guard.map(self._aggregate.result, updated.accumulators, offsets)

    def delete(self, store_keys: Sequence[bytes]) -> None:
        """Delete accumulators."""
        self.store.put_many([(store_key, None) for store_key in store_keys])

    def _result(self, data: bytes) -> Any:
        return self._aggregate.result(self.codec.decode(data))

    def advance(self, watermark_ms: int) -> None:
        """Event time has come so far; accumulators without a time to live do not mind."""

    def fold(self, store_keys: Sequence[bytes], batch: RecordBatch) -> Updated:
        """Fold a batch's values into the accumulators of their store keys."""
        return self._fold(store_keys, batch, by_policy=True)

    def fold_unseen(self, store_keys: Sequence[bytes], batch: RecordBatch) -> None:
        """Fold where nobody wants to know what came of it."""
        self.fold(store_keys, batch)

    def list_windows_in(self, windows: OpenedWindows) -> bool:  # noqa: ARG002 - not here
        """The keys are those of windows. True where ``folds`` lists those that it opens, with ``list_opened``."""
        return False

    def list_opened(self) -> None:
        """List the windows that were opened and not listed yet."""

    def folds(self, keys: Sequence[bytes], batch: RecordBatch, suffix: bytes = b"") -> bool:  # noqa: ARG002 - not here
        """Fold in the core, where nobody wants to know what came of it; False, with nothing done, where Python must.

        Each store key is what is given with the ``suffix`` behind it.
        """
        return False

    def fold_or_raise(self, store_keys: Sequence[bytes], batch: RecordBatch) -> Updated:
        """The same, where the caller sees to a record that the aggregate fails on: then nothing is written."""
        return self._fold(store_keys, batch, by_policy=False)

    def _fold(self, store_keys: Sequence[bytes], batch: RecordBatch, *, by_policy: bool) -> Updated:
        newest = dict(zip(store_keys, range(len(store_keys)), strict=True))
        ordered = sorted(newest)
        before = self._read(ordered)
        try:
            updated = self._folded(ordered, newest, before, self._values(store_keys, ordered, batch.values))
        except Exception:
            if not by_policy:
                raise
            updated = self._folded_one_by_one(ordered, store_keys, before, batch)
        self._write(updated, batch)
        return updated

    def _read(self, ordered: Sequence[bytes]) -> list[bytes | None]:
        return self.store.get_many(ordered)

    def _write(self, updated: Updated, batch: RecordBatch) -> None:  # noqa: ARG002 - stamps and covers need it
        self.store.put_many(list(zip(updated.store_keys, updated.data, strict=True)))

    def _values(
        self, store_keys: Sequence[bytes], ordered: Sequence[bytes], values: Sequence[Any]
    ) -> list[Sequence[Any]]:
        """The values of each key, in their order; as many of anything where only their number matters."""
        if self._aggregate.only_counts:
            counted = Counter(store_keys)
            return [range(counted[key]) for key in ordered]
        groups: dict[bytes, list[Any]] = {key: [] for key in ordered}
        for key, value in zip(store_keys, values, strict=True):
            groups[key].append(value)
        return list(groups.values())

    def _folded(
        self,
        ordered: list[bytes],
        newest: dict[bytes, int],
        before: Sequence[bytes | None],
        values: Sequence[Sequence[Any]],
    ) -> Updated:
        initial, add_many = self._aggregate.initial, self._aggregate.add_many
        decoded = self.codec.decode_many(before)
        accumulators = [
            add_many(initial() if accumulator is None else accumulator, own)
            for accumulator, own in zip(decoded, values, strict=True)
        ]
        return Updated(
            rows=[newest[key] for key in ordered],
            store_keys=ordered,
            data=self.codec.encode_many(accumulators),
            accumulators=accumulators,
            is_new=[data is None for data in before],
        )

    def _folded_one_by_one(
        self,
        ordered: Sequence[bytes],
        store_keys: Sequence[bytes],
        before: Sequence[bytes | None],
        batch: RecordBatch,
    ) -> Updated:
        """The slow way after a failure: each record is in whole or not at all.

        An accumulator that ``add`` left half changed is thrown away; the next record starts from bytes.
        """
        rows: dict[bytes, list[int]] = {key: [] for key in ordered}
        for row, key in enumerate(store_keys):
            rows[key].append(row)
        updated = Updated([], [], [], [], [])
        for key, stored in zip(ordered, before, strict=True):
            done: list[tuple[bytes | None, Any]] = []
            for row in rows[key]:
                add = partial(self._add_one, done, stored, batch.values[row])
                if self._guard.run(add, batch.offsets[row]):
                    newest = row
            if done:
                updated.rows.append(newest)
                updated.store_keys.append(key)
                updated.data.append(done[-1][0])
                updated.accumulators.append(done[-1][1])
                updated.is_new.append(stored is None)
        return updated

    def _add_one(self, done: list[tuple[bytes | None, Any]], stored: bytes | None, value: Any) -> None:
        data = done[-1][0] if done else stored
        accumulator = self._aggregate.initial() if data is None else self.codec.decode(data)
        accumulator = self._aggregate.add_many(accumulator, [value])
        (encoded,) = self.codec.encode_many([accumulator])
        done.append((encoded, accumulator))


class AggregateStep(Step):
    """One accumulator per key. Passes on each changed key's newest result, once per batch."""

    def __init__(self, accumulators: Accumulators, guard: Guard) -> None:
        super().__init__()
        self._accumulators = accumulators
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Fold, write, pass on."""
        batch = with_keys(batch, self._guard)
        if not self.children:
            self._accumulators.fold_unseen(batch.keys, batch)
            return
        updated = self._accumulators.fold(batch.keys, batch)
        results, failed = self._accumulators.shown(updated, batch)
        rows, keys = left_of(updated.rows, failed), left_of(updated.store_keys, failed)
        self.forward(result_rows(batch, rows, keys, results))

    @property
    def needs_turns(self) -> bool:
        """True for accumulators that expire."""
        return type(self._accumulators).advance is not Accumulators.advance

    def advance(self, watermark_ms: int) -> None:
        """Delete expired accumulators."""
        self._accumulators.advance(watermark_ms)

    def own_codecs(self) -> Iterable[Codec[Any]]:
        """That of the accumulators."""
        return (self._accumulators.codec,)

    def own_reads(self) -> Reads | None:
        """What the aggregate reads: the steps behind it have its results."""
        return self._accumulators.reads


def with_keys(batch: RecordBatch, guard: Guard) -> RecordBatch:
    """The rows that have a key; the others follow the policy."""
    if not has_none(batch.keys):
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
        marks_ms=None if batch.marks_ms is None else [batch.marks_ms[row] for row in picked],
    )
