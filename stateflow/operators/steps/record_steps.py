"""Steps without state whose functions are given more of a record than its value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

from stateflow.codec.base import Codec
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.headers import HeadersLike, headers_of
from stateflow.operators.steps.rows import repeated, where, with_values, without
from stateflow.operators.steps.step import Step
from stateflow.record import Headers, RecordBatch, TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class StreamRecord(NamedTuple, Generic[K, V]):
    """A record of a stream with all that is known of it."""

    key: K
    value: V
    timestamp_ms: int
    """Its event time."""
    headers: Headers
    source: TopicPartition
    """Topic and partition that this stage read it from: behind a re-key step, its topic."""
    offset: int
    """Its offset there; −1 for a result that time made."""


class FilterPairsStep(Step):
    """The rows for whose key and value the predicate is true."""

    def __init__(self, predicate: Callable[[Any, Any], object], key_codec: Codec[Any], guard: Guard) -> None:
        super().__init__()
        self._predicate = of_pair(predicate, key_codec)
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Drop rows."""
        mask, failed = self._guard.map(self._predicate, pairs_of(batch), batch.offsets)
        self.forward(where(without(batch, failed), mask))


class FlatMapPairsStep(Step):
    """Any number of values out for each key and value in."""

    def __init__(
        self, function: Callable[[Any, Any], Iterable[Any]], key_codec: Codec[Any], guard: Guard
    ) -> None:
        super().__init__()
        several = of_pair(function, key_codec)
        self._function = lambda pair: list(several(pair))
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Replace each row by as many as the function gives."""
        values, failed = self._guard.map(self._function, pairs_of(batch), batch.offsets)
        self.forward(repeated(without(batch, failed), values))


class MapRecordsStep(Step):
    """One value out for each record in."""

    def __init__(
        self, function: Callable[[StreamRecord[Any, Any]], Any], key_codec: Codec[Any], guard: Guard
    ) -> None:
        super().__init__()
        self._function = function
        self._decode = key_codec.decode
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Replace the values."""
        rows = list(
            zip(
                batch.keys,
                batch.values,
                batch.timestamps_ms,
                batch.headers or repeat((), len(batch)),
                repeat(batch.source, len(batch)),
                batch.offsets,
                strict=True,
            )
        )
        values, failed = self._guard.map(self._of_row, rows, batch.offsets)
        self.forward(with_values(without(batch, failed), values))

    def _of_row(self, row: tuple[bytes | None, Any, int, Headers, TopicPartition, int]) -> Any:
        key, *others = row
        return self._function(StreamRecord(None if key is None else self._decode(key), *others))


class MapHeadersStep(Step):
    """The same rows with headers that a function chooses."""

    def __init__(self, function: Callable[[Headers, Any], HeadersLike], guard: Guard) -> None:
        super().__init__()
        self._function = function
        self._guard = guard

    def process(self, batch: RecordBatch) -> None:
        """Replace the headers."""
        rows = list(zip(batch.headers or repeat((), len(batch)), batch.values, strict=True))
        headers, failed = self._guard.map(self._of_row, rows, batch.offsets)
        self.forward(replace(without(batch, failed), headers=headers if any(headers) else []))

    def _of_row(self, row: tuple[Headers, Any]) -> Headers:
        return headers_of(self._function(*row))


def of_pair(function: Callable[[Any, Any], Any], key_codec: Codec[Any]) -> Callable[[Any], Any]:
    """The function of key and value as one of an undecoded pair."""
    decode = key_codec.decode
    return lambda pair: function(None if pair[0] is None else decode(pair[0]), pair[1])


def pairs_of(batch: RecordBatch) -> list[tuple[bytes | None, Any]]:
    """Key, undecoded, and value of each row."""
    return list(zip(batch.keys, batch.values, strict=True))
