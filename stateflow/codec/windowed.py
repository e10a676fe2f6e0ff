"""The key of a window's result: the key's bytes with those that tell the window behind them."""

from __future__ import annotations

import copy
import struct
from abc import abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

from stateflow.calendar_spans import CalendarUnit, spans_of
from stateflow.codec.base import Codec
from stateflow.codec.scalar import BytesCodec

K = TypeVar("K")
W = TypeVar("W")

_START = struct.Struct(">q")
_ENDS = struct.Struct(">qq")


class Windowed(NamedTuple, Generic[K]):
    """A key in one window: event times from ``start_ms`` up to, not including, ``end_ms``.

    Of a session and of a sliding window ``end_ms`` is included, as in Kafka Streams: a session ends with its last
    record.
    """

    key: K
    start_ms: int
    end_ms: int


class Counted(NamedTuple, Generic[K]):
    """A key in one window of records: those of the key with the numbers ``first`` up to, not including, ``after``."""

    key: K
    first: int
    """Number of its first record; the first of all records of a key is 0."""
    after: int


class WindowKeyCodec(Codec[W], Generic[W]):
    """What all codecs of such keys have in common: the key's own codec, and as many bytes behind it for any window."""

    suffix_bytes = _START.size

    def __init__(self, key: Codec[Any]) -> None:
        self.key: Codec[Any] = key

    def for_keys(self) -> Codec[W]:
        """With the key's own codec for keys."""
        changed = copy.copy(self)
        changed.key = self.key.for_keys()
        return changed

    def inner(self, data: bytes) -> bytes:
        """The bytes of the key alone."""
        return data[: -self.suffix_bytes]

    @abstractmethod
    def says_same(self, other: WindowKeyCodec[Any]) -> bool:
        """Whether the other one takes the same bytes for the same windows."""


class WindowedCodec(WindowKeyCodec[Windowed[K]], Generic[K]):
    """Key bytes ‖ window start, ms, int64 big-endian: as Kafka Streams' TimeWindowedSerializer.

    The size of the window is not in the bytes; the codec knows it.
    """

    def __init__(self, key: Codec[K], size_ms: int) -> None:
        super().__init__(key)
        self.size_ms = size_ms

    def _encode(self, value: Windowed[K]) -> bytes:
        return self.key.encode(value.key) + _START.pack(value.start_ms)

    def _decode(self, data: bytes) -> Windowed[K]:
        key, start_ms = split_windowed(data)
        return Windowed(self.key.decode(key), start_ms, start_ms + self.size_ms)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "windowed", "key": …, "size_ms": …}``."""
        return {"codec": "windowed", "key": self.key.describe(), "size_ms": self.size_ms}

    def __repr__(self) -> str:
        return f"WindowedKey({self.key!r}, size_ms={self.size_ms})"

    def says_same(self, other: WindowKeyCodec[Any]) -> bool:
        """Windows of one size."""
        return isinstance(other, WindowedCodec) and other.size_ms == self.size_ms


class CalendarCodec(WindowKeyCodec[Windowed[K]], Generic[K]):
    """Key bytes ‖ window start, ms, int64 big-endian; where a window ends, the calendar of the time zone says.

    Raises ``GraphError`` for a unit or a zone that there is not.
    """

    def __init__(self, key: Codec[K], unit: CalendarUnit, zone: str) -> None:
        super().__init__(key)
        self._spans = spans_of(unit, zone)

    def _encode(self, value: Windowed[K]) -> bytes:
        return self.key.encode(value.key) + _START.pack(value.start_ms)

    def _decode(self, data: bytes) -> Windowed[K]:
        key, start_ms = split_windowed(data)
        return Windowed(self.key.decode(key), start_ms, self._spans.end_ms(start_ms))

    def describe(self) -> dict[str, Any]:
        """``{"codec": "windowed-calendar", "key": …, "unit": …, "zone": …}``."""
        return {
            "codec": "windowed-calendar",
            "key": self.key.describe(),
            "unit": self._spans.unit,
            "zone": self._spans.zone,
        }

    def __repr__(self) -> str:
        return f"CalendarKey({self.key!r}, unit={self._spans.unit!r}, zone={self._spans.zone!r})"

    def says_same(self, other: WindowKeyCodec[Any]) -> bool:
        """Windows of one calendar."""
        return isinstance(other, CalendarCodec) and other._spans is self._spans


class SessionCodec(WindowKeyCodec[Windowed[K]], Generic[K]):
    """Key bytes ‖ end ‖ start of the session, ms, int64 big-endian: as Kafka Streams' SessionWindowedSerializer."""

    suffix_bytes = _ENDS.size

    def __init__(self, key: Codec[K]) -> None:  # says of which type the key is, as those of the others do
        super().__init__(key)

    def _encode(self, value: Windowed[K]) -> bytes:
        return self.key.encode(value.key) + session_suffix(value.start_ms, value.end_ms)

    def _decode(self, data: bytes) -> Windowed[K]:
        end_ms, start_ms = _ENDS.unpack(data[-_ENDS.size :])
        return Windowed(self.key.decode(self.inner(data)), start_ms, end_ms)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "windowed-session", "key": …}``."""
        return {"codec": "windowed-session", "key": self.key.describe()}

    def __repr__(self) -> str:
        return f"SessionKey({self.key!r})"

    def says_same(self, other: WindowKeyCodec[Any]) -> bool:
        """Any other of sessions."""
        return isinstance(other, SessionCodec)


class CountedCodec(WindowKeyCodec[Counted[K]], Generic[K]):
    """Key bytes ‖ number of the window's first record, int64 big-endian; the codec knows how many are in a window."""

    def __init__(self, key: Codec[K], size: int) -> None:
        super().__init__(key)
        self.size = size

    def _encode(self, value: Counted[K]) -> bytes:
        return self.key.encode(value.key) + _START.pack(value.first)

    def _decode(self, data: bytes) -> Counted[K]:
        key, first = split_windowed(data)
        return Counted(self.key.decode(key), first, first + self.size)

    def describe(self) -> dict[str, Any]:
        """``{"codec": "windowed-count", "key": …, "size": …}``."""
        return {"codec": "windowed-count", "key": self.key.describe(), "size": self.size}

    def __repr__(self) -> str:
        return f"CountedKey({self.key!r}, size={self.size})"

    def says_same(self, other: WindowKeyCodec[Any]) -> bool:
        """Windows of as many records."""
        return isinstance(other, CountedCodec) and other.size == self.size


def window_suffix_of(start: int) -> bytes:
    """What stands behind the key in that of a window known by its start, or by the number of its first record."""
    return _START.pack(start)


def session_suffix(start_ms: int, end_ms: int) -> bytes:
    """What stands behind the key in that of a session's result."""
    return _ENDS.pack(end_ms, start_ms)


def split_windowed(data: bytes) -> tuple[bytes, int]:
    """The bytes of the key and the window's start, ms."""
    (start_ms,) = _START.unpack(data[-_START.size :])
    return data[: -_START.size], start_ms


_TYPES = {
    "string": "str",
    "integer": "int",
    "ordered-integer": "int",
    "float": "float",
    "ordered-float": "float",
    "boolean": "bool",
}


def can_stand_for(outside: Codec[Any], inner: Codec[Any]) -> bool:
    """Whether a topic's key codec is declared for the inner key of windows, or for bytes whatever they are.

    It is the inner key's own codec, or one of the same type of value (text, numbers, one dataclass) in another
    format. A codec that takes anything, or one of the application's own, may be meant for the window as well.
    """
    if isinstance(outside, BytesCodec) or outside == inner:
        return True
    held = _type_of(inner)
    return held is not None and _type_of(outside) == held


def _type_of(codec: Codec[Any]) -> str | None:
    described = codec.describe()
    return described.get("type") or _TYPES.get(described["codec"])
