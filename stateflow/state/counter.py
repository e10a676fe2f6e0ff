"""A number per key that goes up and down."""

from __future__ import annotations

from stateflow.codec.scalar import Integer
from stateflow.errors import StateBoundExceeded
from stateflow.state.stored import Stored

COUNT_MAX = (1 << 63) - 1
COUNT_MIN = -(1 << 63)


class Counter:
    """The current key's count, a signed 64-bit integer that begins at 0. A count of 0 is not stored.

    One lookup and one write per change, of 8 bytes.
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    def get(self) -> int:
        """The count."""
        data = self._stored.get(self._stored.scope.key)
        return 0 if data is None else Integer.decode(data)

    def add(self, amount: int = 1) -> int:
        """Count up; returns the new count.

        Raises ``StateBoundExceeded``, with nothing changed, where 64 bits do not hold it: a count never wraps.
        """
        count = checked_count(self.get() + amount)
        if count:
            self._stored.put(self._stored.scope.key, Integer.encode(count))
        else:
            self.reset()
        return count

    def subtract(self, amount: int = 1) -> int:
        """Count down, below 0 as well; returns the new count. Raises ``StateBoundExceeded`` as ``add`` does."""
        return self.add(-amount)

    def reset(self) -> None:
        """Back to 0."""
        self._stored.delete(self._stored.scope.key)

    def __int__(self) -> int:
        return self.get()


def checked_count(count: int) -> int:
    """A count that fits; raises ``StateBoundExceeded`` for one that does not."""
    if COUNT_MIN <= count <= COUNT_MAX:
        return count
    raise StateBoundExceeded(
        f"a counter cannot hold {count}: it has 64 bits, {COUNT_MIN} to {COUNT_MAX}.",
        action="count in larger units, reset the counter in time, or keep the number in a Value[str].",
        count=count,
    )
