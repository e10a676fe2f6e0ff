"""Accumulators that stay decoded from one batch to the next, and are encoded once per epoch.

Nobody sees a difference: results are those of the fold, a record that fails is seen to when it comes, and what cannot
wait for the commit is written in bytes as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stateflow.codec.base import Codec
from stateflow.operators.aggregates.aggregates import Aggregate, same
from stateflow.operators.aggregates.aggregation import Accumulators, Updated
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.fields import picked_of
from stateflow.operators.steps.guard import Guard
from stateflow.record import RecordBatch
from stateflow.store.decoded import DecodedStore
from stateflow.store.folded import FoldedStore, OpenedWindows

_TRIES = 3
"""So many batches, or as many as went well, may have to be done in bytes before all are."""


def accumulators_of(
    aggregate: Aggregate[Any, Any, Any],
    codec: Codec[Any],
    context: StageContext,
    store: str,
    guard: Guard,
) -> Accumulators:
    """Those of a store that no other step writes: kept decoded where the aggregate allows it."""
    if aggregate.may_wait is None:
        return Accumulators(aggregate, codec, context.store(store), guard)
    store_of_values = context.decoded_store(store, codec, aggregate.folding)
    return DecodedAccumulators(aggregate, codec, store_of_values, guard)


class DecodedAccumulators(Accumulators):
    """``Accumulators`` over a store that takes values."""

    def __init__(
        self, aggregate: Aggregate[Any, Any, Any], codec: Codec[Any], store: DecodedStore, guard: Guard
    ) -> None:
        super().__init__(aggregate, codec, store, guard)
        self._values_of = store
        self._in_core = store if isinstance(store, FoldedStore) else None
        self._may_add = aggregate.only_counts and guard.is_fatal
        """Adding cannot fail. Bytes that are no number would be met at the commit: no policy could see to them."""
        self._kept = self._not_kept = 0
        """Batches whose accumulators could stay decoded, and others."""

    def list_windows_in(self, windows: OpenedWindows) -> bool:
        """The keys are those of windows. True where ``folds`` lists those that it opens, with ``list_opened``."""
        if self._in_core is None:
            return False
        self._in_core.list_windows_in(windows)
        return True

    def list_opened(self) -> None:
        """List the windows that were opened and not listed yet."""
        if self._in_core is not None:
            self._in_core.list_opened()

    def results(self, store_keys: Sequence[bytes]) -> list[tuple[bytes, Any]]:
        """What is shown of the accumulators that there are, with their keys, in the order of the keys."""
        found = zip(store_keys, self._values_of.values(store_keys), strict=True)
        live = [(key, accumulator) for key, accumulator in found if accumulator is not None]
        return live if self._aggregate.result is same else self._results(live, self._aggregate.result)

    def delete(self, store_keys: Sequence[bytes]) -> None:
        """Delete accumulators."""
        self._values_of.set_values(store_keys, [None] * len(store_keys))

    def fold_unseen(self, store_keys: Sequence[bytes], batch: RecordBatch) -> None:
        """Fold where nobody wants to know what came of it: what is only counted is looked at once per epoch."""
        if self._may_add:
            self._values_of.add_ones(store_keys)
        elif self.folds(store_keys, batch):
            return
        elif self._fold_values(list(dict.fromkeys(store_keys)), store_keys, batch) is None:
            super().fold(store_keys, batch)

    def folds(self, keys: Sequence[bytes], batch: RecordBatch, suffix: bytes = b"") -> bool:
        """Fold in the core, where nobody wants to know what came of it; False, with nothing done, where Python must."""
        if self._in_core is None:
            return False
        values, pick = batch.values, self._aggregate.pick
        if pick is not None:
            try:
                values = picked_of(pick, values)
            except Exception:  # noqa: BLE001 - comes up again in Python, at the record that causes it
                return False
        return self._in_core.fold(keys, values, suffix)

    def _fold(self, store_keys: Sequence[bytes], batch: RecordBatch, *, by_policy: bool) -> Updated:
        newest = dict(zip(store_keys, range(len(store_keys)), strict=True))
        ordered = sorted(newest)
        folded = self._fold_values(ordered, store_keys, batch)
        if folded is None:
            return super()._fold(store_keys, batch, by_policy=by_policy)
        before, accumulators = folded
        return Updated(
            rows=[newest[key] for key in ordered],
            store_keys=ordered,
            data=[],
            accumulators=accumulators,
            is_new=[accumulator is None for accumulator in before],
        )

    def _fold_values(
        self, distinct: list[bytes], store_keys: Sequence[bytes], batch: RecordBatch
    ) -> tuple[list[Any], list[Any]] | None:
        """The accumulators of the keys before and after; None, with nothing written, to do it in bytes.

        What fails here comes up again there, where the policy sees to it.
        """
        may_wait = self._aggregate.may_wait
        assert may_wait is not None, "else they are not kept"
        if self._not_kept > max(_TRIES, self._kept):
            return None
        self._not_kept += 1
        try:
            before = self._values_of.values(distinct)
            accumulators = self._added(distinct, before, store_keys, batch.values)
        except Exception:  # noqa: BLE001 - see above
            return None
        if not may_wait(accumulators):
            return None
        self._values_of.set_values(distinct, accumulators)
        self._not_kept -= 1
        self._kept += 1
        return before, accumulators

    def _added(
        self,
        distinct: Sequence[bytes],
        before: Sequence[Any],
        store_keys: Sequence[bytes],
        values: Sequence[Any],
    ) -> list[Any]:
        initial, add_many, add_rows = (
            self._aggregate.initial,
            self._aggregate.add_many,
            self._aggregate.add_rows,
        )
        begun = [initial() if accumulator is None else accumulator for accumulator in before]
        if add_rows is None:
            own = self._values(store_keys, distinct, values)
            return list(map(add_many, begun, own))
        by_key = dict(zip(distinct, begun, strict=True))
        add_rows(by_key, store_keys, values)
        return list(by_key.values())
