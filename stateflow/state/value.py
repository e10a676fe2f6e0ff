"""One value per key."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec
from stateflow.state.expiry import Expiry
from stateflow.state.scope import Scope
from stateflow.state.stored import Stored
from stateflow.store.base import StateStore

T = TypeVar("T")


class Value(Generic[T]):
    """The current key's value. What ``get`` returns is a copy: only ``set`` and ``clear`` change state."""

    def __init__(
        self, store: StateStore, codec: Codec[Any], scope: Scope, default: Any, expiry: Expiry | None
    ) -> None:
        self._stored = Stored(store, scope, expiry)
        self._codec = codec
        self._scope = scope
        self._default = None if default is None else codec.encode(default)

    def get(self) -> T:
        """The value, or the declared default."""
        data = self._stored.get(self._scope.key)
        if data is None:
            data = self._default
        return None if data is None else self._codec.decode(data)  # type: ignore[return-value]

    def set(self, value: T, *, ttl: timedelta | None = None) -> None:
        """Replace the value; None clears it. Raises ``EncodeError`` for a value that the codec refuses.

        ``ttl`` is its own time to live, in event time, in a state declared with ``ttl_per_write``.
        """
        if value is None:
            self.clear()
            return
        self._stored.put(self._scope.key, self._codec.encode(value), ttl)

    def clear(self) -> None:
        """Back to the default."""
        self._stored.delete(self._scope.key)

    @property
    def is_set(self) -> bool:
        """True when there is a value of this key's own."""
        return self._stored.get(self._scope.key) is not None
