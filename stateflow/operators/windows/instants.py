"""The instants at which one key has records, each with what is folded of it, and spans over them that move on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stateflow.operators.aggregates.stamped_accumulators import StampedAccumulators

_IMMUTABLE = (int, float, str, bytes, type(None))


class Instants:
    """Instants by time. The accumulators that it is given stay as they are."""

    def __init__(
        self, difference_ms: int, accumulators: StampedAccumulators, folded: Mapping[int, Any]
    ) -> None:
        self._difference_ms = difference_ms
        self._accumulators = accumulators
        self.times_ms = sorted(folded)
        self._folded = [folded[when_ms] for when_ms in self.times_ms]

    def is_empty(self, start_ms: int) -> bool:
        """Whether the window that starts there holds nothing."""
        first, after = self._within(start_ms)
        return first == after

    def contains(self, start_ms: int, touched_ms: Sequence[int]) -> int:
        """Index of the last of some sorted times that the window holds; −1 for none."""
        last = bisect_right(touched_ms, start_ms + self._difference_ms) - 1
        return last if last >= 0 and touched_ms[last] >= start_ms else -1

    def of(self, start_ms: int) -> Any:
        """What the window that starts there comes to."""
        return self._grown(None, *self._within(start_ms))

    def over(self, starts_ms: Sequence[int]) -> Iterator[Any]:
        """What the window of each start comes to; they must be in order.

        From one to the next the accumulator is carried on: what comes is merged into it, what goes is subtracted, where
        that is exact. Else the window is folded anew from its first instant on, so a result never depends on which
        windows were asked for before it.
        """
        whole: Any = None
        held = (0, 0)
        for start_ms in starts_ms:
            first, after = self._within(start_ms)
            carried = first < held[1]
            for gone in range(held[0], first) if carried else ():
                whole = self._accumulators.without(whole, self._folded[gone])
                if whole is None:
                    carried = False
                    break
            whole = self._grown(whole, held[1], after) if carried else self._grown(None, first, after)
            held = (first, after)
            yield whole
            whole = self._own(whole)

    def _within(self, start_ms: int) -> tuple[int, int]:
        return (
            bisect_left(self.times_ms, start_ms),
            bisect_right(self.times_ms, start_ms + self._difference_ms),
        )

    def _grown(self, whole: Any, first: int, after: int) -> Any:
        for index in range(first, after):
            whole = self._accumulators.merged(whole, self._own(self._folded[index]))
        return whole

    def _own(self, accumulator: Any) -> Any:
        """One that a merge may change."""
        return accumulator if isinstance(accumulator, _IMMUTABLE) else self._accumulators.copied(accumulator)
