"""Keys that a person wrote, as values that a catalog's codec writes to the bytes that the application wrote.

The catalog has the JSON schema of a declared type, not the type: it says that a text stands for bytes, in which order a
dataclass has its fields, and which defaults are written with them; the type's name says that there are times.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from stateflow.codec.windowed import Counted, Windowed

Schema = Mapping[str, Any]

_TIME = "date-time"
_HAS_TIMES = "has times"

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}


def admits_any_text(described: Mapping[str, Any]) -> bool:
    """Whether any text at all is a value of the codec, so that JSON text could be one as well."""
    schema = _schema_of(described)
    return described["codec"] in ("json", "msgpack") and any(map(_is_plain_text, _options(schema, schema)))


def value_of_text(described: Mapping[str, Any], text: str) -> Any:
    """The value that a text stands for: JSON, or a text by itself where texts are values and it is not JSON of one.

    Raises ``ValueError`` for what is neither.
    """
    schema = _schema_of(described)
    takes_text = described["codec"] in ("json", "msgpack") and _fits(text, schema, schema)
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        if not takes_text:
            raise
        value = text
    if takes_text and not _fits(value, schema, schema):
        value = text
    return value_of_json(described, value)


def value_of_json(described: Mapping[str, Any], value: Any) -> Any:
    """A value read from JSON as the codec has it: times, bytes and the order of fields as its schema says."""
    codec, schema = described["codec"], _schema_of(described)
    if isinstance(value, list) and codec.startswith("windowed"):
        key, *bounds = value
        made = Counted if codec == "windowed-count" else Windowed
        return made(value_of_json(described["key"], key), *bounds)
    if codec not in ("json", "msgpack") or not schema:
        return value
    return _typed(value, schema, schema)


def _schema_of(described: Mapping[str, Any]) -> Schema:
    """The schema, and whether texts in it may be times: msgspec's schema of a datetime says no more than text."""
    schema, named = described.get("schema") or {}, str(described.get("type"))
    if named == "datetime":
        return {**schema, "format": _TIME}
    return {**schema, _HAS_TIMES: True} if re.search(r"\bdatetime\b", named) else schema


def _options(schema: Schema, root: Schema) -> list[Schema]:
    """What a value may be, each without references."""
    if "$ref" in schema:
        return _options(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        return [option for part in schema["anyOf"] for option in _options(part, root)]
    return [schema]


def _is_plain_text(option: Schema) -> bool:
    of_texts = option.get("type", "string") == "string"
    return of_texts and not {"format", "contentEncoding", "enum", "const"} & set(option)


def _fits(value: Any, schema: Schema, root: Schema) -> bool:
    return any(_fits_option(value, option) for option in _options(schema, root))


def _fits_option(value: Any, option: Schema) -> bool:
    if "enum" in option:
        return value in option["enum"]
    named = option.get("type")
    types = _TYPES.get(named, (object,)) if isinstance(named, str) else (object,)
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types and types != (object,)):
        return False
    return option.get("format") != _TIME or not isinstance(value, str) or _time_of(value) is not None


def _typed(value: Any, schema: Schema, root: Schema) -> Any:
    option = next((each for each in _options(schema, root) if _fits_option(value, each)), None)
    if option is None:
        return value
    if isinstance(value, str):
        return _typed_text(value, option, may_be_time=_HAS_TIMES in root and _is_plain_text(option))
    if isinstance(value, list):
        first = option.get("prefixItems") or []
        rest = [option.get("items") or {}] * (len(value) - len(first))
        return [_typed(part, own or {}, root) for part, own in zip(value, [*first, *rest], strict=False)]
    if isinstance(value, dict):
        return _typed_fields(value, option, root)
    is_float = option.get("type") == "number" and not isinstance(value, bool)
    return float(value) if is_float else value


def _typed_text(value: str, option: Schema, *, may_be_time: bool) -> Any:
    if may_be_time or option.get("format") == _TIME:
        return _time_of(value) or value
    if option.get("contentEncoding") == "base64":
        try:
            return binascii.a2b_base64(value, strict_mode=True)
        except binascii.Error as error:
            raise ValueError(f"bytes inside a key are written in base64: {error}") from error
    return value


def _typed_fields(value: dict[str, Any], option: Schema, root: Schema) -> dict[str, Any]:
    """The fields in the order of the type, those left out as their defaults say."""
    fields: dict[str, Any] = {}
    for name, own in (option.get("properties") or {}).items():
        if name in value:
            fields[name] = _typed(value[name], own, root)
        elif "default" in own:
            fields[name] = _typed(own["default"], own, root)
    others = option.get("additionalProperties")
    schema = others if isinstance(others, Mapping) else {}
    return fields | {name: _typed(part, schema, root) for name, part in value.items() if name not in fields}


def _time_of(text: str) -> datetime | None:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
