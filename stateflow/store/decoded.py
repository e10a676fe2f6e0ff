"""A dirty map whose values stay decoded until somebody needs their bytes: at the commit, as a rule.

A key that many records of an epoch change is so encoded once, and decoded not at all while it is remembered. Whoever
asks for bytes gets those of what was set last: everything that is inherited encodes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import repeat
from typing import Any, Self

from stateflow.codec.base import Codec
from stateflow.errors import DecodeError
from stateflow.memory import ENTRY_BYTES
from stateflow.store.base import Change, StoreReader
from stateflow.store.dirty import DirtyStore
from stateflow.store.generations import MISSING, Generations

VALUE_BYTES = 32
"""What a value takes, about: a number, or two."""


class DecodedStore(DirtyStore):
    """A ``DirtyStore`` that takes and gives values as well, which must be immutable.

    What it was given is kept across epochs, in the place of the read cache and within its bound. Not thread-safe.
    """

    def __init__(self, reader: StoreReader, codec: Codec[Any], read_cache_bytes: int) -> None:
        super().__init__(reader, read_cache_bytes=0)
        self._codec = codec
        self._remembered: Generations[Any] = Generations(read_cache_bytes, _numbers_bytes)
        self._changed: dict[bytes, Any] = {}
        """Set since the last commit and not encoded yet; None where the key was deleted."""
        self._added: Counter[bytes] = Counter()
        """To be added to integers that nobody has looked at yet."""
        self._undecided_bytes = 0
        """Keys and values of both, about."""
        self.near: dict[bytes, Any] = {}
        """What ``value`` would give of the keys that were loaded last; always this same map."""
        self.touched: set[bytes] = set()
        """Keys that whoever called ``load`` gave another value in ``near``; ``write_back`` makes it a change."""

    @classmethod
    def in_place_of(cls, store: DirtyStore, codec: Codec[Any]) -> Self:
        """The same store with nothing changed, for a task that is being built."""
        assert not store.is_dirty, "values were written before anybody said what they are"
        return cls(store._reader, codec, store._cache.bytes_max)

    # --- values ---------------------------------------------------------------------------------------

    def values(self, keys: Sequence[bytes]) -> list[Any]:
        """The values in the order of the keys as this task left them; None for a key that is not there.

        Raises ``DecodeError``.
        """
        self._decide()
        found: list[Any] = list(map(self._changed.get, keys, repeat(MISSING)))
        unknown = _missing(found)
        if unknown:
            remembered = self._remembered.get_many([keys[index] for index in unknown])
            for index, value in zip(unknown, remembered, strict=True):
                found[index] = value
            unknown = [index for index in unknown if found[index] is MISSING]
        if unknown:
            unknown.sort(key=keys.__getitem__)  # sorted keys are read fastest
            stored = super().get_many([keys[index] for index in unknown])
            for index, value in zip(unknown, self._codec.decode_many(stored), strict=True):
                found[index] = value
        return found

    def value(self, key: bytes) -> Any:
        """The value of one key as this task left it; None where there is none. Raises ``DecodeError``."""
        found = self.near.get(key, MISSING)
        if found is not MISSING:
            return found
        if not self._added:
            found = self._changed.get(key, MISSING)
            if found is MISSING:
                found = self._remembered.get(key)
            if found is not MISSING:
                return found
        return self.values([key])[0]

    def load(self, keys: Sequence[bytes]) -> None:
        """Have the values of these different keys near, by one read of those that are not known.

        Whoever asked may then look into ``near``, and set values there of keys that it has: with each the key goes into
        ``touched``. Inside an undo scope nothing is near.
        """
        self._decide()
        near, changed = self.near, self._changed
        near.clear()
        if self._undo is not None:
            return
        near.update(zip(keys, map(changed.get, keys, self._remembered.get_many(keys)), strict=True))
        unknown = [key for key, value in near.items() if value is MISSING]
        if unknown:
            try:
                values = self.values(unknown)
            except DecodeError:  # met by whoever asks for the value, and knows why
                for key in unknown:
                    del near[key]
            else:
                self._remembered.put_many(unknown, values)
                near.update(zip(unknown, values, strict=True))

    def set_value(self, key: bytes, value: Any) -> None:
        """Set the value of one key, which the codec can encode; None deletes."""
        if self._undo is not None or self._added:
            self.set_values([key], [value])
            return
        self.touched.discard(key)
        if key not in self._changed:
            self._undecided_bytes += VALUE_BYTES + len(key)
        self._changed[key] = self.near[key] = value

    def set_values(self, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Set values, each of which the codec can encode; None deletes."""
        if not keys:
            return
        self._decide()
        self.near.clear()
        if self._undo is not None:
            self._put_through(keys, values)
            return
        before = len(self._changed)
        self._changed.update(zip(keys, values, strict=True))
        self._note(keys, len(self._changed) - before)

    def add_ones(self, keys: Sequence[bytes]) -> None:
        """Add one to the integer of each key, as often as the key is named; a key that is not there has 0."""
        self.write_back()
        self.near.clear()
        if self._undo is not None:
            added = Counter(keys)
            self._put_through(list(added), self._sums(added))
            return
        before = len(self._added)
        self._added.update(keys)
        self._note(keys, len(self._added) - before)

    def write_back(self) -> None:
        """What was set of keys that are near becomes part of the epoch. They stay near."""
        if self.touched:
            keys = list(self.touched)
            self.touched.clear()
            self._write_back(keys, list(map(self.near.__getitem__, keys)))

    def _write_back(self, keys: list[bytes], values: list[Any]) -> None:
        before = len(self._changed)
        self._changed.update(zip(keys, values, strict=True))
        self._note(keys, len(self._changed) - before)

    def _sums(self, added: Counter[bytes]) -> list[int]:
        values = self.values(list(added))
        return [(value or 0) + ones for value, ones in zip(values, added.values(), strict=True)]

    def _decide(self) -> None:
        """Have all that was changed in one place: what was set near, and sums that nobody has looked at yet."""
        self.write_back()
        if self._added:
            added, self._added = self._added, Counter()
            self._changed.update(zip(added, self._sums(added), strict=True))

    def _put_through(self, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        self._remembered.forget_many(keys)
        super().put_many(list(zip(keys, self._codec.encode_many(values), strict=True)))

    def _note(self, keys: Sequence[bytes], grown: int) -> None:
        if grown:
            self._undecided_bytes += grown * (VALUE_BYTES + sum(map(len, keys)) // len(keys))

    def _encode(self) -> None:
        """Hand everything over to the dirty map."""
        self._decide()
        if self._changed:
            keys = sorted(self._changed)  # what is in order already is soon sorted by `changes`
            values = list(map(self._changed.__getitem__, keys))
            super().put_columns(keys, self._codec.encode_many(values))
            self._changed, self._undecided_bytes = {}, 0
            self._remember(keys, values)

    def _remember(self, keys: list[bytes], values: list[Any]) -> None:
        if None in values:  # what was deleted would fill the room: windows that were closed
            gone = [key for key, value in zip(keys, values, strict=True) if value is None]
            self._remembered.forget_many(gone)
            keys = [key for key, value in zip(keys, values, strict=True) if value is not None]
            values = [value for value in values if value is not None]
        self._remembered.put_many(keys, values)

    # --- what a dirty map does, after encoding ----------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        """True when anything was changed since the last commit."""
        return bool(self._changed or self._added or self.touched) or super().is_dirty

    @property
    def dirty_bytes(self) -> int:
        """Keys and values changed since the last commit, those not encoded yet about."""
        return super().dirty_bytes + self._undecided_bytes

    @property
    def held_bytes(self) -> int:
        """What the changes take in memory."""
        undecided = len(self._changed) + len(self._added)
        return super().held_bytes + self._undecided_bytes + ENTRY_BYTES * undecided

    def _set(self, key: bytes, value: bytes | None) -> None:
        self.near.clear()
        super()._set(key, value)

    def limit_cache(self, bytes_max: int) -> None:
        """From now on at most so much is remembered."""
        self._remembered.limit(bytes_max)

    def get(self, key: bytes) -> bytes | None:
        """The value as this task left it, or None."""
        self._encode()
        return super().get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys."""
        self._encode()
        return super().get_many(keys)

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first`` ≤ key < ``after``, in byte order, as they are now."""
        self._encode()
        return super().scan(first, after)

    def range(self, first: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """The first entries that ``scan`` would give, ``limit`` at most."""
        self._encode()
        return super().range(first, after, limit)

    def put_many(self, changes: Sequence[Change]) -> None:
        """Set or delete many keys."""
        self._encode()
        self.near.clear()
        self._remembered.forget_many([key for key, _ in changes])
        super().put_many(changes)

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key."""
        self.put_many([(key, value)])

    def put_keys(self, keys: Sequence[bytes]) -> None:
        """Set many different keys in their order, which have no value."""
        self.put_many([(key, b"") for key in keys])

    def put_new(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Set many different keys that are not there."""
        self.put_many(list(zip(keys, values, strict=True)))

    def put_new_keys(self, keys: Sequence[bytes]) -> None:
        """The same of keys in their order, which have no value."""
        self.put_keys(keys)

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        self.put_many([(key, None)])

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Remove many different keys."""
        self.put_many([(key, None) for key in keys])

    def mark(self) -> int:
        """Begin a scope whose writes can be taken back; returns the mark that ends it."""
        self._encode()
        self.near.clear()
        return super().mark()

    def changes(self) -> Sequence[Change]:
        """The epoch so far: every changed key once, sorted, with its whole new value."""
        self._encode()
        return super().changes()

    def committed(self) -> None:
        """The epoch is on disk; its values stay known."""
        assert not self._changed, "an epoch is encoded before it is committed"
        assert self._undo is None, "a commit inside an undo scope"
        self.near.clear()
        super().clear()

    def clear(self) -> None:
        """Drop the epoch; what was committed is as it was."""
        super().clear()
        self._changed, self._added, self._undecided_bytes = {}, Counter(), 0
        self.touched.clear()
        self.near.clear()
        self._remembered.clear()


def _missing(found: Sequence[Any]) -> list[int]:
    return [index for index, value in enumerate(found) if value is MISSING]


def _numbers_bytes(values: Collection[Any]) -> int:
    return VALUE_BYTES * len(values)
