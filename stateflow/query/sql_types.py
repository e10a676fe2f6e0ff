"""The SQL type of each codec's values, and decoded values as a column of it shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

SQL_TYPES = {
    "bytes": "binary",
    "string": "string",
    "integer": "bigint",
    "ordered-integer": "bigint",
    "ordered-float": "double",
    "float": "double",
    "boolean": "boolean",
}
ARROW_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "binary": pa.binary,
    "string": pa.string,
    "bigint": pa.int64,
    "int": pa.int32,
    "double": pa.float64,
    "boolean": pa.bool_,
    "timestamp": lambda: pa.timestamp("us", tz="UTC"),
}


def sql_type(codec: Mapping[str, Any]) -> str:
    """The Spark SQL type of a codec's values; what has no simple type of its own is written as JSON text."""
    if codec["codec"] == "covered":
        return sql_type(codec["value"])
    return SQL_TYPES.get(codec["codec"], "string")


def sql_values(codec: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
    """Decoded values as the column shows them: what has no simple type is JSON text."""
    if codec["codec"] in SQL_TYPES:
        return list(values)
    return [None if value is None else _json_text(value) for value in values]


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, default=_as_text, sort_keys=True)
    except TypeError:  # keys that JSON does not have, or of several types
        return json.dumps(_with_text_keys(value), default=_as_text, sort_keys=True)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key_text(key): _with_text_keys(part) for key, part in value.items()}
    return [_with_text_keys(part) for part in value] if isinstance(value, list | tuple) else value


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else json.dumps(key, default=_as_text).strip('"')


def _as_text(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else str(value)
