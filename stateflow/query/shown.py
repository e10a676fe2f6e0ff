"""Keys and values as JSON has them, so that a key that was shown can be given back to `stateflow state get`."""

from __future__ import annotations

import binascii
import json
from typing import Any

import msgspec

from stateflow.state.decoding import KEY_FORMS, UnreadableKey


def as_json(value: Any) -> Any:
    """A key or a value as JSON-able data.

    Bytes are their text where they are printable UTF-8, else ``hex:…``; inside of something else they are base64, as
    JSON of a declared type has them.
    """
    if isinstance(value, bytes):
        return _bytes_text(value)
    return _inner(value)


def _bytes_text(value: bytes) -> str:
    if isinstance(value, UnreadableKey):
        return f"hex:{value.hex()}"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return f"hex:{value.hex()}"
    return text if text.isprintable() and not text.startswith(KEY_FORMS) else f"hex:{value.hex()}"


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key_text(key): _inner(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_inner(part) for part in value]
    if isinstance(value, bytes):
        return binascii.b2a_base64(value, newline=False).decode()
    if value is None or isinstance(value, str | int | float):
        return value
    return msgspec.to_builtins(value, enc_hook=str)


def _key_text(key: Any) -> str:
    shown = _inner(key)
    return shown if isinstance(shown, str) else json.dumps(shown)
