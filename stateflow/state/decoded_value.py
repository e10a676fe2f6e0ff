"""A number per key that stays a number until the commit: the lean path of operators called record by record."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

from stateflow.codec.base import Codec
from stateflow.codec.evolving import EvolvingCodec
from stateflow.codec.scalar import Float, Integer
from stateflow.native.folds import Folding
from stateflow.state.scope import Scope
from stateflow.state.value import Value
from stateflow.store.decoded import DecodedStore

T = TypeVar("T")

_END = 1 << 63
"""One past the largest integer of 64 bits."""


def assigning(codec: Codec[Any]) -> Folding | None:
    """What the core does with values of a codec that may stay decoded; None where it cannot write them."""
    written = codec.bare if isinstance(codec, EvolvingCodec) else codec
    if written not in (Integer, Float):
        return None
    return Folding("assign", integers=written == Integer, floats=written == Float)


def may_stay_decoded(codec: Codec[Any]) -> bool:
    """Whether values of a codec are immutable, of one size, and come back as they were: numbers of 64 bits."""
    return codec in (Integer, Float)


class DecodedValue(Value[T]):
    """``Value`` over a store that takes numbers. What it cannot keep goes through the codec, which may refuse it."""

    def __init__(self, store: DecodedStore, codec: Codec[Any], scope: Scope, default: Any) -> None:
        super().__init__(store, codec, scope, default, None)
        self._values = store
        self._near, self._touch = store.near, store.touched.add
        self._default_value = None if default is None else codec.decode(codec.encode(default))
        self._is_real = codec.describe()["codec"] != "integer"
        self._type: type = float if self._is_real else int

    def get(self) -> T:
        """The value, or the declared default."""
        try:
            value = self._near[self._scope.key]
        except KeyError:
            value = self._values.value(self._scope.key)
        return self._default_value if value is None else value  # type: ignore[return-value]

    def set(self, value: T, *, ttl: timedelta | None = None) -> None:
        """Replace the value; None clears it. Raises ``EncodeError`` for a value that the codec refuses."""
        if type(value) is not self._type or ttl is not None or not (self._is_real or -_END <= value < _END):  # type: ignore[operator]
            super().set(value, ttl=ttl)
            return
        key = self._scope.key
        if key in self._near:
            self._near[key] = value
            self._touch(key)
        else:
            self._values.set_value(key, value)

    def clear(self) -> None:
        """Back to the default."""
        self._values.set_value(self._scope.key, None)

    @property
    def is_set(self) -> bool:
        """True when there is a value of this key's own."""
        return self._values.value(self._scope.key) is not None
