"""Values of a key folded into one by an associative function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec
from stateflow.state.stored import Stored

T = TypeVar("T")


class Reducing(Generic[T]):
    """The current key's values, reduced. What is read is a copy.

    Only the result is kept, so the function must be associative: folding two parts and then both results must
    give what folding everything gives. One lookup and one write per value added.
    """

    def __init__(
        self, stored: Stored, codec: Codec[Any], reduce: Callable[[Any, Any], Any], initial: Any
    ) -> None:
        self._stored = stored
        self._codec = codec
        self._reduce = reduce
        self._initial = None if initial is None else codec.encode(initial)

    def get(self) -> T:
        """What was added, reduced; before the first value the declared ``initial``, or None."""
        data = self._stored.get(self._stored.scope.key)
        if data is None:
            data = self._initial
        return None if data is None else self._codec.decode(data)  # type: ignore[return-value]

    def add(self, value: T) -> T:
        """Fold in one more value; returns the result so far."""
        data = self._stored.get(self._stored.scope.key)
        result = value if data is None else self._reduce(self._codec.decode(data), value)
        self._stored.put(self._stored.scope.key, self._codec.encode(result))
        return result

    def clear(self) -> None:
        """Begin anew."""
        self._stored.delete(self._stored.scope.key)

    @property
    def is_set(self) -> bool:
        """True when a value was added."""
        return self._stored.get(self._stored.scope.key) is not None
