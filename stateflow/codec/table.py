"""A codec from its description in the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stateflow.codec.avro import AvroCodec
from stateflow.codec.base import Codec
from stateflow.codec.counted import CountedValueCodec
from stateflow.codec.held import ShownHeldCodec
from stateflow.codec.offset_stamped import OffsetStampedCodec
from stateflow.codec.optional import NothingCodec, OptionalCodec
from stateflow.codec.ordered import OrderedFloat, OrderedInteger
from stateflow.codec.scalar import BooleanCodec, BytesCodec, FloatCodec, IntegerCodec, StringCodec
from stateflow.codec.structured import Json, MsgPack
from stateflow.codec.timed import ExpiringCodec, TimedCodec
from stateflow.codec.timer import ShownTimerCodec
from stateflow.codec.windowed import CalendarCodec, CountedCodec, SessionCodec, WindowedCodec
from stateflow.errors import ConfigError

_BUILDERS: dict[str, Callable[[Mapping[str, Any]], Codec[Any]]] = {
    "bytes": lambda _: BytesCodec(),
    "string": lambda _: StringCodec(),
    "integer": lambda described: IntegerCodec(described["bits"]),
    "float": lambda described: FloatCodec(described["bits"]),
    "boolean": lambda _: BooleanCodec(),
    "ordered-integer": lambda _: OrderedInteger,
    "ordered-float": lambda _: OrderedFloat,
    "optional": lambda described: OptionalCodec(from_description(described["value"])),
    "none": lambda _: NothingCodec(),
    "json": lambda _: Json,
    "msgpack": lambda _: MsgPack,
    "avro": lambda described: AvroCodec(described["schema"]),
    "timer": lambda _: ShownTimerCodec(),
    "expiring": lambda described: ExpiringCodec(from_description(described["value"])),
    "timestamped": lambda described: TimedCodec(from_description(described["value"])),
    "covered": lambda described: OffsetStampedCodec(from_description(described["value"])),
    "held": lambda described: ShownHeldCodec(from_description(described["value"])),
    "windowed": lambda described: WindowedCodec(from_description(described["key"]), described["size_ms"]),
    "windowed-calendar": lambda described: CalendarCodec(
        from_description(described["key"]), described["unit"], described["zone"]
    ),
    "windowed-session": lambda described: SessionCodec(from_description(described["key"])),
    "counted": lambda described: CountedValueCodec(
        from_description(described["value"]), described["size"], described["advance"]
    ),
    "windowed-count": lambda described: CountedCodec(from_description(described["key"]), described["size"]),
}


def key_from_description(described: Mapping[str, Any]) -> Codec[Any]:
    """The same for keys that are written: as the application writes them, dicts sorted.

    An object of a declared type is a dict here, whose fields are written in the order in which it has them.
    """
    codec = from_description(described)
    return codec if "$ref" in (described.get("schema") or {}) else codec.for_keys()


def is_known(codec: Codec[Any]) -> bool:
    """Whether it is one of these, and what it is made of as well: the application's own codecs are not."""
    parts: list[Mapping[str, Any]] = [codec.describe()]
    while parts:
        part = parts.pop()
        if part.get("codec") not in _BUILDERS:
            return False
        parts += [inner for inner in part.values() if isinstance(inner, Mapping) and "codec" in inner]
    return True


def from_description(described: Mapping[str, Any]) -> Codec[Any]:
    """A codec that reads what the described codec wrote.

    Values of a declared type come back as dict and list, since the class is the application's and tools work
    without it. Raises ``ConfigError`` for a description that this version does not know.
    """
    try:
        return _BUILDERS[described["codec"]](described)
    except (KeyError, TypeError) as cause:
        raise ConfigError(
            f"No codec is known for the description {dict(described)!r:.200}.",
            action="Use the version of stateflow that wrote it; your own codecs need your own reader.",
        ) from cause
