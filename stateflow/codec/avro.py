"""Avro by fastavro, with the guards that input from outside needs.

A recursive schema lets a few kilobytes nest so deep that the decoder overflows its stack and the process
dies; an array whose items take no bytes lets five bytes claim half a gigabyte. Both are refused when the
codec is made. Fixed and bytes lengths are checked by the size of the record itself.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from stateflow.codec.base import Codec
from stateflow.errors import ConfigError

RECORD_BYTES_MAX = 16 << 20
NESTING_MAX = 100

_NAMED = frozenset({"record", "error", "enum", "fixed"})
_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class AvroCodec(Codec[Any]):
    """Avro's binary encoding of one schema, without a container file or schema id.

    Raises ``ConfigError`` for a schema that is invalid or unsafe to decode from outside.
    """

    def __init__(self, schema: Mapping[str, Any] | str, *, record_bytes_max: int = RECORD_BYTES_MAX) -> None:
        import fastavro

        self._schema = _as_data(schema)
        self._record_bytes_max = record_bytes_max
        check_safe(self._schema)
        try:
            parsed = fastavro.parse_schema(self._schema)
        except Exception as cause:
            raise _refused(f"is not valid: {cause}") from cause
        self._parsed = parsed
        self._write, self._read = fastavro.schemaless_writer, fastavro.schemaless_reader
        self._sorts_maps = False

    @property
    def parsed(self) -> Any:
        """The schema as fastavro wants it."""
        return self._parsed

    def _encode(self, value: Any) -> bytes:
        if self._sorts_maps:
            value = _maps_sorted(value)
        out = io.BytesIO()
        self._write(out, self._parsed, value, strict_allow_default=True)
        return out.getvalue()

    def _decode(self, data: bytes) -> Any:
        if len(data) > self._record_bytes_max:
            raise ValueError(f"more than {self._record_bytes_max} bytes")
        source = io.BytesIO(data)
        value = self._read(source, self._parsed, None)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes left over")
        return value

    def for_keys(self) -> AvroCodec:
        """Maps are written sorted by their keys; a set, which has no order, is refused."""
        changed = copy.copy(self)
        changed._sorts_maps = not isinstance(self._schema, str)
        return changed

    def describe(self) -> dict[str, Any]:
        """``{"codec": "avro", "schema": …}``."""
        return {"codec": "avro", "schema": self._schema}

    def __repr__(self) -> str:
        name = self._schema.get("name", "…") if isinstance(self._schema, dict) else self._schema
        return f"Avro({name})"


def _maps_sorted(value: Any) -> Any:
    """Records are dicts as well; of those the schema says in which order the fields are written."""
    if isinstance(value, Mapping):
        return {name: _maps_sorted(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_maps_sorted, value))  # a tuple names a branch of a union
    if isinstance(value, AbstractSet):
        raise TypeError("a set has no order, so that its bytes are no key: give sorted(…)")
    return value


def _as_data(schema: Mapping[str, Any] | str) -> Any:
    import msgspec

    if not isinstance(schema, str):
        return dict(schema)
    if schema in _PRIMITIVE:
        return schema
    try:
        return msgspec.json.decode(schema)
    except msgspec.DecodeError as cause:
        raise _refused(f"is not JSON: {cause}") from cause


def check_safe(schema: Any) -> None:
    """Refuse recursion, items of zero bytes, and nesting deeper than 100; raises ``ConfigError``."""
    _least_bytes(schema, defined={}, open_names=(), namespace="", depth=0)


def _least_bytes(
    schema: Any, defined: dict[str, int], open_names: tuple[str, ...], namespace: str, depth: int
) -> int:
    """The fewest bytes that a value can take; walks the whole schema and refuses what is unsafe."""
    if depth > NESTING_MAX:
        raise _refused(f"nests deeper than {NESTING_MAX}")
    if isinstance(schema, str):
        return _least_bytes_of_name(schema, defined, open_names, namespace)
    if isinstance(schema, list):
        return 1 + min(
            (_least_bytes(branch, defined, open_names, namespace, depth + 1) for branch in schema), default=0
        )
    if not isinstance(schema, dict) or "type" not in schema:
        raise _refused(f"has a part that is no type: {schema!r:.100}")
    kind = schema["type"]
    if isinstance(kind, str) and kind in ("array", "map"):
        item = schema["items"] if kind == "array" else schema["values"]
        item_bytes = _least_bytes(item, defined, open_names, namespace, depth + 1) + (kind == "map")
        if item_bytes == 0:
            raise _refused("has an array of items that take no bytes: a few bytes could claim any memory")
        return 1
    if isinstance(kind, str) and kind in _NAMED:
        return _least_bytes_of_named(schema, defined, open_names, namespace, depth)
    return _least_bytes(kind, defined, open_names, namespace, depth + 1)


def _least_bytes_of_name(
    name: str, defined: dict[str, int], open_names: tuple[str, ...], namespace: str
) -> int:
    if name in _PRIMITIVE:
        return {"null": 0, "float": 4, "double": 8}.get(name, 1)
    full = _full_name(name, namespace)
    if full in open_names or name in open_names:
        raise _refused(f"is recursive: {full} contains itself, so a small record could nest without end")
    if full in defined or name in defined:
        return defined.get(full, defined.get(name, 0))
    raise _refused(f"names an unknown type {name!r}")


def _least_bytes_of_named(
    schema: dict[str, Any], defined: dict[str, int], open_names: tuple[str, ...], namespace: str, depth: int
) -> int:
    if "name" not in schema:
        raise _refused(f"has a {schema['type']} without a name")
    inside = str(schema.get("namespace", namespace))
    full = _full_name(str(schema["name"]), inside)
    namespace = full.rpartition(".")[0]
    if schema["type"] == "enum":
        least = 1
    elif schema["type"] == "fixed":
        least = int(schema.get("size", 0))
    else:
        opened = (*open_names, full)
        fields = schema.get("fields", [])
        least = sum(_least_bytes(field, defined, opened, namespace, depth + 1) for field in fields)
    defined[full] = least
    return least


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _refused(why: str) -> ConfigError:
    return ConfigError(
        f"The Avro schema {why}.", action="Declare a schema whose records are bounded by their bytes."
    )
