"""What a codec's description does not say of its values: whether a string is text or a time, and what keys are.

JSON schemas, by which types are described, call text, times of day and instants strings, and give keys of any type no
word. So the catalog has these beside them, by their place: ``$`` is the value, ``$.name`` its field, ``$[]`` an item,
``$.*`` what a dict maps to and ``$.<key>`` its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from stateflow.codec.base import Codec
from stateflow.codec.faithful import FaithfulCodec
from stateflow.codec.structured import TypedCodec

Details = dict[str, tuple[str, ...]]
"""Place in a value → what may stand there, sorted, None left out."""

_INSPECTED = msgspec.inspect
_NAMES: dict[type, str] = {
    _INSPECTED.StrType: "text",
    _INSPECTED.BytesType: "bytes",
    _INSPECTED.ByteArrayType: "bytes",
    _INSPECTED.MemoryViewType: "bytes",
    _INSPECTED.DateTimeType: "datetime",
    _INSPECTED.DateType: "date",
    _INSPECTED.TimeType: "time",
    _INSPECTED.TimeDeltaType: "timedelta",
    _INSPECTED.UUIDType: "uuid",
    _INSPECTED.DecimalType: "decimal",
    _INSPECTED.EnumType: "choice",
    _INSPECTED.LiteralType: "choice",
}
_KEY_NAMES = _NAMES | {
    _INSPECTED.IntType: "int",
    _INSPECTED.FloatType: "float",
    _INSPECTED.BoolType: "bool",
    _INSPECTED.AnyType: "any",
    _INSPECTED.TupleType: "tuple",
    _INSPECTED.VarTupleType: "tuple",
}


def details_of(codec: Codec[Any]) -> Details | None:
    """The details of a codec of a declared type; None for any other."""
    written = codec.written if isinstance(codec, FaithfulCodec) else codec
    if not isinstance(written, TypedCodec):
        return None
    found: dict[str, set[str]] = {}
    for place, name in _named(msgspec.inspect.type_info(written.value_type), "$", frozenset(), _NAMES):
        found.setdefault(place, set()).add(name)
    return {place: tuple(sorted(names)) for place, names in sorted(found.items())}


def detail_obstacles(new: Mapping[str, Any] | None, old: Mapping[str, Any] | None) -> Iterator[str]:
    """Why values with the ``old`` details may not be readable with the ``new``; nothing where either is not known."""
    if new is None or old is None:
        return
    for place in sorted(new.keys() & old.keys()):
        may_be = {*new[place]} | ({"choice"} if "text" in new[place] else set())
        if "any" not in may_be and not {*old[place]} <= may_be:
            yield f"{place} was {' or '.join(old[place])} and is {' or '.join(new[place])}"


def _named(
    info: Any, place: str, within: frozenset[Any], names: Mapping[type, str]
) -> Iterator[tuple[str, str]]:
    while isinstance(info, _INSPECTED.Metadata):
        info = info.type
    if type(info) in names:
        yield place, names[type(info)]
    elif isinstance(info, _INSPECTED.UnionType):
        for member in info.types:
            yield from _named(member, place, within, names)
    elif isinstance(info, _INSPECTED.DictType):
        yield from _named(info.key_type, f"{place}.<key>", within, _KEY_NAMES)
        yield from _named(info.value_type, f"{place}.*", within, _NAMES)
    elif isinstance(info, _INSPECTED.TupleType):
        for index, item in enumerate(info.item_types):
            yield from _named(item, f"{place}[{index}]", within, _NAMES)
    elif isinstance(info, _INSPECTED.CollectionType):
        yield from _named(info.item_type, f"{place}[]", within, _NAMES)
    elif hasattr(info, "fields") and info.cls not in within:
        # A type inside itself is described where it is met first.
        for field in info.fields:
            yield from _named(field.type, f"{place}.{field.encode_name}", within | {info.cls}, _NAMES)
