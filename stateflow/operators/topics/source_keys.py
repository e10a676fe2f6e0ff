"""The keys of a source topic, checked where records enter: state is never kept under one that cannot be decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from stateflow.codec.base import Codec
from stateflow.codec.scalar import BytesCodec
from stateflow.errors import DecodeError
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import without
from stateflow.record import RecordBatch, has_none

_KNOWN_MAX = 50_000
"""Distinct keys that are remembered as decodable, where checking one means decoding it."""


class SourceKeys:
    """Lets records go on whose keys the topic's codec reads; the others follow the policy. No key at all is none.

    Steps behind it work on the bytes of keys. Without this a count would keep a record that ``process`` refuses, and
    whoever reads the state would meet its key.
    """

    def __init__(self, codec: Codec[Any], guard: Guard) -> None:
        self.codec = codec
        self._guard = guard
        self._takes_any = isinstance(codec, BytesCodec)
        self._known: set[bytes] = set()

    def readable(self, rows: RecordBatch) -> RecordBatch:
        """The rows whose keys can be decoded; the batch itself when all can."""
        if self._takes_any or self._are_readable(rows.keys):
            return rows
        _, failed = self._guard.map(self._checked, rows.keys, rows.offsets)
        return without(rows, failed)

    def _are_readable(self, keys: Sequence[bytes | None]) -> bool:
        there = [key for key in keys if key is not None] if has_none(keys) else cast(Sequence[bytes], keys)
        if self.codec.checks_quickly:
            return self.codec.reads_all(there)
        new = set(there) - self._known
        if new and not self.codec.reads_all(list(new)):
            return False
        if len(self._known) + len(new) > _KNOWN_MAX:
            self._known.clear()
        self._known |= new
        return True

    def _checked(self, key: bytes | None) -> None:
        if key is None:
            return
        try:
            self.codec.decode(key)
        except DecodeError as error:
            raise DecodeError(
                f"The record's key: {error.message}", action=error.action, **error.fields
            ) from error
