"""Records read in part: a JSON or MessagePack map of which only some fields become objects of Python.

Where steps say which fields they read (``stateflow/operators/steps/reads.py``), making the others costs most of what
such a step does. What is no map, and what cannot be read, is left to the whole codec, so that errors are the same. Of
what is passed over, its structure is checked and, in JSON, that it is text.
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

import msgspec

from stateflow.record import has_none

ABSENT = msgspec.UNSET
"""What a field is that a record does not have."""
_BYTES = "as_bytes_"


class ProjectedRow(msgspec.Struct, gc=False):
    """Some fields of a record, each ``ABSENT`` where it has none of that name."""

    as_bytes_: bytes = b""
    """The record as it came, where a step passes it on."""


def present(part: Any) -> Any:
    """A field for whom one that is absent is None."""
    return None if part is ABSENT else part


class Projection:
    """Reads some fields of records that are maps. Batches are read in part as a whole, or not at all."""

    def __init__(
        self, wire: Literal["json", "msgpack"], fields: AbstractSet[str], *, keep_bytes: bool
    ) -> None:
        declared: list[tuple[str, Any, Any]] = [(name, Any, ABSENT) for name in sorted(fields)]
        row = msgspec.defstruct("ProjectedRow", declared, bases=(ProjectedRow,), gc=False)
        module = msgspec.json if wire == "json" else msgspec.msgpack
        self._decode = module.Decoder(row).decode
        self._is_text = wire == "json"
        self._keep_bytes = keep_bytes

    def read(self, rows: Sequence[bytes | None]) -> list[ProjectedRow] | None:
        """The fields of each record; None where the whole codec has to read the batch."""
        if has_none(rows):
            return None
        decode = self._decode
        try:
            values = [decode(data) for data in rows]
            if self._is_text:
                _check_text(rows)  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None  # the whole codec says of which record, and why
        if self._keep_bytes:
            for value, data in zip(values, rows, strict=True):
                value.as_bytes_ = data
        return values


def can_be_fields(names: AbstractSet[str]) -> bool:
    """Whether these can be the names of attributes; others are rare, and records are then read whole.

    Among those that begin with two underscores are what Python itself looks for in a class.
    """
    return not any(
        name == _BYTES or name.startswith("__") or keyword.iskeyword(name) or not name.isidentifier()
        for name in names
    )


def _check_text(rows: Sequence[bytes]) -> None:
    """Text that was passed over is not decoded: a record that is not UTF-8 there has to fail as it would have."""
    if not all(map(bytes.isascii, rows)):
        for data in rows:
            data.decode()
