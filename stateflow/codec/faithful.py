"""The codec of a state: refuses a value that would come back as another one than it was.

What is read of a state must be what was written, or results would depend on when it went through its bytes: an
accumulator stays an object within a batch, and is decoded for the next one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args, get_origin

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.structured import TypedCodec, UntypedCodec
from stateflow.codec.type_parts import SCALARS, field_names, parts_of
from stateflow.errors import DecodeError, EncodeError

_SEQUENCES = (list, tuple)


def faithful(codec: Codec[Any], state: str, *, alike: bool = False, reads: Any = None) -> Codec[Any]:
    """The codec, checking what it writes to the state of a name, where it is JSON or MessagePack; else as it is.

    ``alike``: a tuple may come back as a list, for a state in which every value that is written goes through its bytes
    at once. ``reads`` is the type of the values where the codec, which then is untyped MessagePack, does not say it.
    """
    if not isinstance(codec, (UntypedCodec, TypedCodec)) or (
        isinstance(codec, TypedCodec) and codec.is_of_scalars
    ):
        return codec
    return FaithfulCodec(codec, state, alike=alike, reads=reads)


def unchecked(codec: Codec[Any]) -> Codec[Any]:
    """The codec without the check: for plain data of which it makes what the state keeps."""
    return codec.unchecked if isinstance(codec, FaithfulCodec) else codec


class FaithfulCodec(Codec[Any]):
    """Writes and is described as the ``written`` codec."""

    def __init__(
        self, written: UntypedCodec | TypedCodec[Any], state: str, *, alike: bool, reads: Any
    ) -> None:
        self._written = written
        self._state = state
        self._alike = alike
        self._codec: UntypedCodec | TypedCodec[Any] = (
            written if reads is None else TypedCodec(reads, "msgpack")
        )
        type_ = Any if isinstance(self._codec, UntypedCodec) else self._codec.value_type
        self._is_open = _has_any(type_)
        self._is_kept = _quick_check(type_) if self._codec.wire == "msgpack" else _unknown
        """True of a value that comes back as it is for certain; it costs less than to decode it."""

    @property
    def written(self) -> Codec[Any]:
        """The codec that it is described as."""
        return self._written

    @property
    def unchecked(self) -> Codec[Any]:
        """What reads and writes the same bytes."""
        return self._codec

    def _encode(self, value: Any) -> bytes:
        data = self._codec._encode(value)
        self._check(value, data)
        return data

    def _encode_all(self, values: Sequence[Any | None]) -> list[bytes | None]:
        encoded = self._codec._encode_all(values)
        for value, data in zip(values, encoded, strict=True):
            if data is not None:
                self._check(value, data)
        return encoded

    def _decode(self, data: bytes) -> Any:
        return self._codec._decode(data)

    def _decode_all(self, rows: Sequence[bytes | None]) -> list[Any]:
        return self._codec._decode_all(rows)

    def _check(self, value: Any, data: bytes) -> None:
        """Raise ``TypeError`` where the bytes are not those of an equal value."""
        if self._is_kept(value):
            return
        back = self._codec._decode(data)
        if back == value and (not self._is_open or _is_plain(value)):
            return
        if not _is_same(back, value, alike=self._alike):
            raise TypeError(f"it would come back as {type(back).__name__} {back!r:.80}")

    def _encode_error(self, value: object, cause: Exception) -> EncodeError:
        shown = f"{type(value).__name__} {value!r}"
        return EncodeError(
            f"The state {self._state!r}, which is {self._codec!r}, cannot keep {shown[:200]}: {cause}.",
            action="Say what the state keeps (type=… of the aggregate, the annotation of a declared state), so that it"
            " is read as what it was; or produce what was declared, or plain data: dict, list, str, number.",
            state=self._state,
        )

    def _decode_error(self, data: bytes, cause: Exception) -> DecodeError:
        error = super()._decode_error(data, cause)
        return DecodeError(
            f"A value of the state {self._state!r} cannot be read: {error.message}",
            action="It was written by code of another type than today's: declare the type that was written, or give"
            " the state a higher version=… and migrations=…, or another name, under which it begins anew.",
            **error.fields,
            state=self._state,
        )

    def describe(self) -> dict[str, Any]:
        """As the codec that it checks."""
        return self._written.describe()

    def __repr__(self) -> str:
        return repr(self._codec)


def _unknown(value: Any) -> bool:  # noqa: ARG001 - decoding it will tell
    return False


def _is_plain(value: Any) -> bool:
    """Whether MessagePack gives a value back as it is without being told its type: plain data down to the last part."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict:
        return SCALARS.issuperset(map(type, value)) and _all_plain(value.values())
    if kind is list:
        return _all_plain(value)
    return kind is datetime.datetime and value.tzinfo is not None


def _all_plain(values: Iterable[Any]) -> bool:
    return SCALARS.issuperset(map(type, values)) or all(map(_is_plain, values))


def _quick_check(type_: Any) -> Callable[[Any], bool]:
    """``_is_kept`` for values of a type: of any, or a dict or list of scalars or of any."""
    origin, parts = get_origin(type_) or type_, get_args(type_)
    if type_ is Any:
        return _is_plain
    if origin is dict:
        are_keys, are_values = (_check_of_parts(part) for part in parts or (Any, Any))
        if are_keys is not None and are_values is not None:
            return lambda value: type(value) is dict and are_keys(value) and are_values(value.values())
    if origin is list:
        are_items = _check_of_parts(*(parts or (Any,)))
        if are_items is not None:
            return lambda value: type(value) is list and are_items(value)
    return _unknown


def _check_of_parts(type_: Any) -> Callable[[Iterable[Any]], bool] | None:
    if type_ is Any:
        return _all_plain
    if type_ not in SCALARS:
        return None
    return lambda parts: {*map(type, parts)} <= {type_}


def _has_any(type_: Any) -> bool:
    """Whether some part of a type may be anything: of those only the values tell whether they come back."""
    return any(isinstance(part, msgspec.inspect.AnyType) for part in parts_of(type_))


def _is_same(back: Any, value: Any, *, alike: bool) -> bool:
    """Whether a decoded value is what was encoded: of the same types throughout; an integer may become a float."""
    if isinstance(value, _SEQUENCES):
        if type(back) is not type(value) and not (alike and isinstance(back, _SEQUENCES)):
            return False
        pairs = zip(back, value, strict=False)
        return len(back) == len(value) and all(_is_same(one, other, alike=alike) for one, other in pairs)
    if isinstance(back, float) and type(value) in (int, float):
        return back == value or (back != back and value != value)
    if type(back) is not type(value):
        return alike and isinstance(back, (set, frozenset)) and bool(back == value)
    if isinstance(value, dict):
        return _same_keys(back, value) and all(
            _is_same(part, value[key], alike=alike) for key, part in back.items()
        )
    if isinstance(value, (set, frozenset)):
        return _same_keys(back, value)
    names = field_names(value)
    if names is not None:
        return all(_is_same(getattr(back, name), getattr(value, name), alike=alike) for name in names)
    return bool(back == value or (back != back and value != value))


def _same_keys(back: Any, value: Any) -> bool:
    """Equal, and of the same types."""
    return set(back) == set(value) and {*map(type, back)} == {*map(type, value)}
