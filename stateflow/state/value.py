"""One value per key."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from stateflow.codec.base import Codec
from stateflow.state.expiry import Expiry
from stateflow.state.scope import Scope
from stateflow.store.base import StateStore

T = TypeVar("T")


class Value(Generic[T]):
    """The current key's value. What ``get`` returns is a copy: only ``set`` and ``clear`` change state."""

    def __init__(
        self, store: StateStore, codec: Codec[Any], scope: Scope, default: Any, expiry: Expiry | None
    ) -> None:
        self._store = store
        self._codec = codec
        self._scope = scope
        self._default = None if default is None else codec.encode(default)
        self._expiry = expiry

    def get(self) -> T:
        """The value, or the declared default."""
        data = self._live()
        if data is None:
            data = self._default
        return None if data is None else self._codec.decode(data)  # type: ignore[return-value]

    def set(self, value: T) -> None:
        """Replace the value; None clears it. Raises ``EncodeError`` for a value that the codec refuses."""
        if value is None:
            self.clear()
            return
        data = self._codec.encode(value)
        if self._expiry is not None:
            data = self._expiry.stamped(data, self._scope.timestamp_ms)
        self._store.put(self._scope.key, data)

    def clear(self) -> None:
        """Back to the default."""
        self._store.delete(self._scope.key)

    @property
    def is_set(self) -> bool:
        """True when there is a value of this key's own."""
        return self._live() is not None

    def _live(self) -> bytes | None:
        stored = self._store.get(self._scope.key)
        if self._expiry is None:
            return stored
        return self._expiry.live(stored, self._scope.watermark_ms)
