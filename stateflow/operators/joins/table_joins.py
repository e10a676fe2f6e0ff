"""Joins with tables, at work: a stream's records with what a table holds; two tables with each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from stateflow.codec.base import Codec
from stateflow.codec.change import Change
from stateflow.codec.timed import Timed, TimedCodec
from stateflow.operators.aggregates.aggregation import with_keys
from stateflow.operators.joins.interval_join import LEFT, RIGHT, JoinKind
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import with_values, without
from stateflow.operators.steps.step import PortedStep
from stateflow.operators.tables.table_readers import NEWEST_MS, TableReader
from stateflow.operators.tables.table_steps import real_changes, with_times
from stateflow.record import RecordBatch
from stateflow.store.base import StateStore

_Missing = Literal["missing"]
_MISSING: _Missing = "missing"


class StreamTableStep(PortedStep):
    """Each record of a stream with what the table holds for its key; the table's changes join nothing by themselves."""

    def __init__(
        self,
        table: TableReader,
        function: Callable[[Any, Any], Any],
        *,
        is_inner: bool,
        is_as_of: bool,
        guard: Guard,
    ) -> None:
        super().__init__()
        self._is_as_of = is_as_of
        self._table = table
        self._function = function
        self._is_inner = is_inner
        self._guard = guard

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Join the rows of the stream."""
        if handler != LEFT:
            return
        batch = with_keys(batch, self._guard)
        self._table.prefetch(sorted(set(batch.keys)))
        rows = list(zip(batch.keys, batch.values, batch.timestamps_ms, strict=True))
        results, failed = self._guard.map(self._joined, rows, batch.offsets)
        batch = without(batch, failed)
        unmatched = [row for row, result in enumerate(results) if result is _MISSING]
        self.forward(without(with_values(batch, results), unmatched))

    def _joined(self, row: tuple[bytes, Any, int]) -> Any:
        key, value, at_ms = row
        found = self._table.get(key, at_ms if self._is_as_of else NEWEST_MS)
        if found is None:
            return _MISSING if self._is_inner else self._function(value, None)
        return self._function(value, found.value)


@dataclass(frozen=True, slots=True)
class Pairing:
    """How the values of two tables become one."""

    kind: JoinKind
    function: Callable[[Any, Any], Any]

    def joined(self, left: Any, right: Any) -> Any:
        """The value for a key of which the tables hold these; None for none."""
        if left is None and (self.kind != "outer" or right is None):
            return None
        if right is None and self.kind == "inner":
            return None
        return self.function(left, right)


class TableTableStep(PortedStep):
    """Two tables joined: a change on either side changes the result, as what the other holds says."""

    def __init__(self, left: TableReader, right: TableReader, pairing: Pairing, guard: Guard) -> None:
        super().__init__()
        self._others = {LEFT: right, RIGHT: left}
        self._pairing = pairing
        self._before = guard.remaking(pairing.joined)
        self._guard = guard

    def process_from(self, handler: str, batch: RecordBatch) -> None:
        """Join the changes of one side with what the other holds. A pair that is let go has no result."""
        other = self._others[handler]
        other.prefetch(sorted(set(batch.keys)))
        is_left = handler == LEFT
        rows = list(zip(batch.keys, batch.values, batch.timestamps_ms, batch.offsets, strict=True))
        results, failed = self._guard.map(
            lambda row: self._changed(row, other, is_left=is_left), rows, batch.offsets
        )
        batch = without(batch, failed)
        times_ms = [timestamp_ms for timestamp_ms, _ in results]
        moved = with_times(with_values(batch, [change for _, change in results]), times_ms)
        self.forward(real_changes(moved))

    def _changed(
        self, row: tuple[bytes, Change[Any], int, int], other: TableReader, *, is_left: bool
    ) -> tuple[int, Change[Any]]:
        key, change, at_ms, offset = row
        found = other.get(key, NEWEST_MS)
        beside = None if found is None else found.value
        make, joined = self._guard.one_of_several, self._pairing.joined
        if is_left:
            before, now = self._before(change.old, beside), make(joined, change.new, beside, offset=offset)
        else:
            before, now = self._before(beside, change.old), make(joined, beside, change.new, offset=offset)
        return (
            at_ms if found is None else max(at_ms, found.timestamp_ms),
            Change(before, now[0] if now else None),
        )


class OverlappingTablesStep(PortedStep):
    """Two tables joined that are computed of one and the same: its changes come to both sides, one after the other.

    When the first comes the other side tells of the second already, and nobody of what was before: so the result is
    kept. Each change of the common table is one change of it.
    """

    def __init__(self, joined: TableReader, value: Codec[Any], store: StateStore, guard: Guard) -> None:
        super().__init__()
        self._joined = joined
        self._codec = TimedCodec(value)
        self._store = store
        self._guard = guard

    def process_from(self, handler: str, batch: RecordBatch) -> None:  # noqa: ARG002 - both sides are looked up
        """Work out what the keys of these changes have now."""
        self._joined.prefetch(sorted(set(batch.keys)))
        rows = list(zip(batch.keys, batch.timestamps_ms, batch.offsets, strict=True))
        results, failed = self._guard.map(self._changed, rows, batch.offsets)
        batch = without(batch, failed)
        times_ms = [timestamp_ms for timestamp_ms, _ in results]
        changes = [change for _, change in results]
        self.forward(real_changes(with_times(with_values(batch, changes), times_ms)))

    def _changed(self, row: tuple[bytes, int, int]) -> tuple[int, Change[Any]]:
        key, at_ms, offset = row
        joined = self._guard.one_of_several(self._joined.get, key, NEWEST_MS, offset=offset)
        found, before = joined[0] if joined else None, self._store.get(key)
        now = None if found is None else self._codec.encode(found)
        if now == before:
            return at_ms, Change(None, None)
        self._store.put_many([(key, now)])
        old = None if before is None else self._codec.decode(before).value
        if found is None:
            return at_ms, Change(old, None)
        return max(at_ms, found.timestamp_ms), Change(old, found.value)


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """What two joined tables hold together; implements ``TableReader``."""

    left: TableReader
    right: TableReader
    joined: Callable[[Any, Any], Any]
    """The value for what they hold; None for none."""

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Of both."""
        self.left.prefetch(keys)
        self.right.prefetch(keys)

    def get(self, key: bytes, as_of_ms: int) -> Timed[Any] | None:
        """The joined value, as new as the newer of the two."""
        left, right = self.left.get(key, as_of_ms), self.right.get(key, as_of_ms)
        value = self.joined(None if left is None else left.value, None if right is None else right.value)
        if value is None:
            return None
        return Timed(max(each.timestamp_ms for each in (left, right) if each is not None), value)
