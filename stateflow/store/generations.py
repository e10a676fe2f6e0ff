"""A bounded map of what was last written or read, in two generations.

Entries go into the young generation. When they do not fit into half of the room it becomes the old one, and what was
old goes: no entry is looked at one by one. What is met in the old generation becomes young again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Any, Final, Generic, TypeVar

from stateflow.memory import ENTRY_BYTES

V = TypeVar("V")


class Missing:
    """Type of the mark for "not known", where None stands for "known to be absent"."""


MISSING: Final = Missing()


class Generations(Generic[V]):
    """Values by key in at most ``bytes_max``; ``values_bytes`` tells what several values take beside their entries."""

    def __init__(self, bytes_max: int, values_bytes: Callable[[Collection[V]], int]) -> None:
        self._bytes_max = bytes_max
        self._values_bytes = values_bytes
        self._young: dict[bytes, V] = {}
        self._old: dict[bytes, V] = {}
        self._young_bytes = self._old_bytes = 0

    @property
    def bytes_max(self) -> int:
        """How much it may hold."""
        return self._bytes_max

    @property
    def size_bytes(self) -> int:
        """How much it holds; what became young again counts twice until the old generation goes."""
        return self._young_bytes + self._old_bytes

    def limit(self, bytes_max: int) -> None:
        """From now on hold at most so much; what is too much goes at once, the oldest first."""
        self._bytes_max = bytes_max
        if self.size_bytes > bytes_max:
            self._drop_old()
            self._trim_young()

    def get(self, key: bytes) -> V | Missing:
        """The value, or ``MISSING``."""
        value: V | Missing = self._young.get(key, MISSING)
        return self._old.get(key, MISSING) if value is MISSING else value

    def get_many(self, keys: Sequence[bytes]) -> list[V | Missing]:
        """The values, or ``MISSING``, in the order of the keys."""
        found: list[V | Missing] = list(map(self._young.get, keys, repeat(MISSING)))
        if self._old:
            old, again = self._old, {}
            for index in [index for index, value in enumerate(found) if value is MISSING]:
                key = keys[index]
                if key in old:
                    found[index] = again[key] = old[key]
            if again:
                self._add(again)
        return found

    def put_many(self, keys: Sequence[bytes], values: Sequence[V]) -> None:
        """Remember values, in the place of what was known of their keys."""
        if self._bytes_max:
            self._add(dict(zip(keys, values, strict=True)))

    def forget_many(self, keys: Collection[bytes]) -> None:
        """Know nothing of these keys any more."""
        young, old = self._young, self._old
        gone_young = {key: young.pop(key) for key in keys if key in young}
        gone_old = {key: old.pop(key) for key in keys if key in old} if old else {}
        if gone_young:
            self._young_bytes -= self._size(gone_young, gone_young.values())
        if gone_old:
            self._old_bytes -= self._size(gone_old, gone_old.values())

    def clear(self) -> None:
        """Know nothing any more."""
        self._drop_old()
        self._young, self._young_bytes = {}, 0

    def _add(self, newest: dict[bytes, V]) -> None:
        added_bytes = self._size(newest, newest.values())
        if self._young_bytes + added_bytes > self._bytes_max // 2:
            self._old, self._old_bytes = self._young, self._young_bytes
            self._young, self._young_bytes = {}, 0
        replaced = self._young.keys() & newest.keys()
        if replaced:
            self._young_bytes -= self._size(replaced, [self._young[key] for key in replaced])
        self._young.update(newest)
        self._young_bytes += added_bytes
        self._trim_young()

    def _trim_young(self) -> None:
        """Keep the newest entries that fit into half of the room. Of the others an older value must not come back."""
        if self._young_bytes <= self._bytes_max // 2:
            return
        self._drop_old()
        kept, kept_bytes = [], 0
        for key in reversed(self._young):
            kept_bytes += self._size([key], [self._young[key]])
            if kept_bytes > self._bytes_max // 2:
                break
            kept.append(key)
        self._young = {key: self._young[key] for key in reversed(kept)}
        self._young_bytes = self._size(self._young, self._young.values())

    def _drop_old(self) -> None:
        self._old, self._old_bytes = {}, 0

    def _size(self, keys: Collection[bytes], values: Collection[V]) -> int:
        return ENTRY_BYTES * len(keys) + sum(map(len, keys)) + self._values_bytes(values)


def bytes_of(values: Collection[Any]) -> int:
    """What values that are bytes, or None, take."""
    return sum(map(len, filter(None, values)))


Known = bytes | None | Missing


class ReadCache(Generations[bytes | None]):
    """What disk is known to hold: None for a key known to be absent."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max, bytes_of)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Remember what disk holds for a key."""
        size_bytes = ENTRY_BYTES + len(key) + (len(value) if value else 0)
        if key in self._young or self._young_bytes + size_bytes > self._bytes_max // 2:
            self.put_many((key,), (value,))
        else:  # the usual case, once for each lookup on disk
            self._young[key] = value
            self._young_bytes += size_bytes
