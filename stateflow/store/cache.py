"""A read cache of bytes over one store, bounded in bytes, that knows absent keys too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from stateflow.memory import ENTRY_BYTES


class Missing:
    """Type of the mark for "not known", where None stands for "known to be absent"."""


MISSING: Final = Missing()
Known = bytes | None | Missing


class ReadCache:
    """What disk is known to hold. Reads are one dict look-up; the entries written longest ago make room."""

    def __init__(self, bytes_max: int) -> None:
        self.size_bytes = 0
        self._entries: dict[bytes, bytes | None] = {}
        self._bytes_max = bytes_max

    def limit(self, bytes_max: int) -> None:
        """From now on hold at most so much; what is too much goes at once."""
        self._bytes_max = bytes_max
        if self.size_bytes > bytes_max:
            self._make_room()

    def get(self, key: bytes) -> Known:
        """The value, None for a key known to be absent, or ``MISSING``."""
        return self._entries.get(key, MISSING)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Remember what disk holds for a key."""
        self.put_many((key,), (value,))

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Remember what disk holds for several keys."""
        if not self._bytes_max:
            return
        entries = self._entries
        for key, value in zip(keys, values, strict=True):
            known: Known = entries.pop(key, MISSING)  # taken out first, so that it goes to the young end
            if not isinstance(known, Missing):
                self.size_bytes -= _size(key, known)
            entries[key] = value
            self.size_bytes += _size(key, value)
        if self.size_bytes > self._bytes_max:
            self._make_room()

    def forget_many(self, keys: Iterable[bytes]) -> None:
        """Know nothing of these keys any more."""
        for key in keys:
            known: Known = self._entries.pop(key, MISSING)
            if not isinstance(known, Missing):
                self.size_bytes -= _size(key, known)

    def _make_room(self) -> None:
        """Drop the oldest entries until a quarter of the room is free, so that this runs seldom."""
        target_bytes = self._bytes_max * 3 // 4
        for key in list(self._entries):
            if self.size_bytes <= target_bytes:
                break
            self.size_bytes -= _size(key, self._entries.pop(key))


def _size(key: bytes, value: bytes | None) -> int:
    return ENTRY_BYTES + len(key) + (0 if value is None else len(value))
