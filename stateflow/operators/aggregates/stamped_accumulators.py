"""Accumulators that stand behind a time, for windows which records themselves open: sessions and sliding ones."""

from __future__ import annotations

from typing import Any

from stateflow.catalog.model import StoreEntry
from stateflow.codec.base import Codec
from stateflow.codec.optional import OptionalCodec
from stateflow.codec.timed import TIME_BYTES, TimedCodec, stamp, time_of
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.state.merging import ValueMerge, value_merge


class StampedAccumulators:
    """How one aggregate's accumulators are made, combined and written: time, ms ‖ present or not ‖ accumulator."""

    def __init__(self, aggregate: Aggregate[Any, Any, Any]) -> None:
        assert aggregate.merge is not None, "the graph has refused it"
        self._aggregate = aggregate
        self._codec: Codec[Any] = OptionalCodec(aggregate.codec())
        self._merge = aggregate.merge

    @property
    def stored(self) -> Codec[Any]:
        """What the store's values are, as the catalog has it."""
        return TimedCodec(self._codec)

    def added(self, accumulator: Any, value: Any) -> Any:
        """One more value; an accumulator of None is a new one, and any other may be changed in place."""
        begun = self._aggregate.initial() if accumulator is None else accumulator
        return self._aggregate.add_many(begun, [value])

    def outgrows(self, accumulator: Any) -> bool:
        """Whether it cannot be kept, which where it is not encoded nobody else would notice."""
        tells = self._aggregate.outgrows
        return tells is not None and accumulator is not None and tells(accumulator)

    def merged(self, one: Any, two: Any) -> Any:
        """What folding both parts would have given; None stands for a part in which nothing was."""
        if one is None or two is None:
            return two if one is None else one
        return self._merge(one, two)

    def without(self, whole: Any, part: Any) -> Any:
        """The accumulator without one of its parts, the result exact; None where that cannot be had."""
        if part is None:
            return whole
        subtract = self._aggregate.subtract
        return None if subtract is None or whole is None else subtract(whole, part)

    def result(self, accumulator: Any) -> Any:
        """What is shown of it."""
        return self._aggregate.result(self._aggregate.initial() if accumulator is None else accumulator)

    def copied(self, accumulator: Any) -> Any:
        """Another one that is equal, by way of its bytes."""
        return self._codec.decode(self._codec.encode(accumulator)) if accumulator is not None else None

    def value_merge(self, _entry: StoreEntry) -> ValueMerge:
        """How two stored accumulators become one, without the times before them."""
        return value_merge(self._codec, self.merged)

    def encoded(self, time_ms: int, accumulator: Any) -> bytes:
        """As it is stored."""
        payload = b"\x00" if accumulator is None else self._codec.encode(accumulator)
        return stamp(payload, time_ms)

    def decoded(self, data: bytes) -> tuple[int, Any]:
        """The time, and the accumulator or None."""
        return time_of(data), self._codec.decode(data[TIME_BYTES:])
