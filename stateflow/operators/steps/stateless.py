"""Steps without state: one function each, run over a column of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stateflow.codec.base import Codec
from stateflow.operators.steps.column_functions import ColumnFunction, FirstTrue
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.reads import Reads, all_of, reads_of
from stateflow.operators.steps.record_steps import of_pair, pairs_of
from stateflow.operators.steps.rows import repeated, where, with_values, without
from stateflow.operators.steps.step import PassStep, Step
from stateflow.record import RecordBatch


class MapStep(Step):
    """One value out for each value in."""

    def __init__(self, function: Callable[[Any], Any], guard: Guard) -> None:
        super().__init__()
        self._function = function
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Replace the values."""
        values, failed = self._guard.map(self._function, batch.values, batch.offsets)
        self.forward(with_values(without(batch, failed), values))

    def own_reads(self) -> Reads | None:
        """What the function reads: the steps behind it have other values."""
        return reads_of(self._function)


class MapPairsStep(Step):
    """One value out for each key and value in."""

    def __init__(self, function: Callable[[Any, Any], Any], key_codec: Codec[Any], guard: Guard) -> None:
        super().__init__()
        self._function = of_pair(function, key_codec)
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Replace the values."""
        values, failed = self._guard.map(self._function, pairs_of(batch), batch.offsets)
        self.forward(with_values(without(batch, failed), values))


class FlatMapStep(Step):
    """Any number of values out for each value in."""

    def __init__(self, function: Callable[[Any], Iterable[Any]], guard: Guard) -> None:
        super().__init__()
        self._function = lambda value: list(function(value))
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Replace each row by as many as the function gives."""
        values, failed = self._guard.map(self._function, batch.values, batch.offsets)
        self.forward(repeated(without(batch, failed), values))


class FilterStep(PassStep):
    """The rows for which the predicate is true."""

    def __init__(self, predicate: Callable[[Any], object], guard: Guard) -> None:
        super().__init__()
        self._predicate = predicate
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Drop rows."""
        mask, failed = self._guard.map(self._predicate, batch.values, batch.offsets)
        self.forward(where(without(batch, failed), mask))

    def own_reads(self) -> Reads | None:
        """What the predicate reads."""
        return reads_of(self._predicate)


class PeekStep(PassStep):
    """Shows each value to a function and passes all of them on."""

    def __init__(self, function: Callable[[Any], object], guard: Guard) -> None:
        super().__init__()
        self._function = function
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Call the function; a row it fails on follows the policy."""
        _, failed = self._guard.map(self._function, batch.values, batch.offsets)
        self.forward(without(batch, failed))

    def own_reads(self) -> Reads | None:
        """What the function reads."""
        return reads_of(self._function)


class ArmStep(PassStep):
    """The rows that a branch chose for one of its arms."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index


class BranchStep(PassStep):
    """Each row to the first arm whose predicate is true, else to the last. The children are ``ArmStep``."""

    def __init__(self, predicates: Sequence[Callable[[Any], object]], guard: Guard) -> None:
        super().__init__()
        self._predicates = tuple(predicates)
        columns = [predicate for predicate in predicates if isinstance(predicate, ColumnFunction)]
        self._choose = FirstTrue(columns) if len(columns) == len(predicates) else self._arm_of
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Split the rows."""
        chosen, failed = self._guard.map(self._choose, batch.values, batch.offsets)
        kept = without(batch, failed)
        for arm in self.children:
            assert isinstance(arm, ArmStep), "a branch is followed by its arms"
            rows = where(kept, [index == arm.index for index in chosen])
            if len(rows):
                arm.process(rows)

    def own_reads(self) -> Reads | None:
        """What the predicates read."""
        return all_of(map(reads_of, self._predicates))

    def _arm_of(self, value: Any) -> int:
        for index, predicate in enumerate(self._predicates):
            if predicate(value):
                return index
        return len(self._predicates)
