"""A decoded store whose keys are counted in the native core from one commit to the next.

It does what ``DecodedStore`` does, byte for byte. What is only counted stays in the core: keys are looked up, added up,
sorted and encoded without an object each. Before anybody reads or writes otherwise all of that is handed over, and goes
on in Python until the next commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Integer
from stateflow.memory import ENTRY_BYTES
from stateflow.native.tally import Tally
from stateflow.store.base import Change, ChangeColumns, StoreReader
from stateflow.store.decoded import VALUE_BYTES, DecodedStore
from stateflow.store.dirty import DirtyStore

if TYPE_CHECKING:
    from stateflow.native.library import Core


def counted_in_place_of(store: DirtyStore, codec: Codec[Any]) -> DecodedStore:
    """A store of integers that are mostly counted, in the place of one with nothing changed."""
    return (TalliedStore if _core_for(codec) is not None else DecodedStore).in_place_of(store, codec)


def _core_for(codec: Codec[Any]) -> Core | None:
    from stateflow.native.loading import core  # takes as long as much else of us, and is needed when it runs

    return core() if codec == Integer else None  # which is what the core encodes


class TalliedStore(DecodedStore):
    """Counts in the core, where that is in use; all else as its parent does it."""

    def __init__(self, reader: StoreReader, codec: Codec[Any], read_cache_bytes: int) -> None:
        super().__init__(reader, codec, read_cache_bytes)
        used = _core_for(codec)
        assert used is not None, "only made where the core can do it"
        self._tally = Tally(used, read_cache_bytes)
        self._tally_bytes = 0
        """What the keys of this epoch in the tally take, as ``dirty_bytes`` counts it."""
        self._is_tallying = False
        """True while the tally holds anything, be it totals of epochs before; nothing is remembered in Python then."""
        self._gave_tally = False
        """True from changes that are the tally's until they are committed."""

    def add_ones(self, keys: Sequence[bytes]) -> None:
        """Add one to the integer of each key, as often as the key is named; a key that is not there has 0."""
        if self._undo is not None or self._added or self._changed or self._dirty:
            super().add_ones(keys)
        elif keys:
            if not self._is_tallying:
                self._is_tallying = True
                self._remembered.clear()
            self._gave_tally = False
            grown, keys_bytes = self._tally.add(keys)
            self._tally_bytes += grown * (VALUE_BYTES + keys_bytes // len(keys))

    def value(self, key: bytes) -> Any:
        """The value of one key as this task left it; None where there is none. Raises ``DecodeError``."""
        self._decide()
        return super().value(key)

    def set_value(self, key: bytes, value: Any) -> None:
        """Set the value of one key, which the codec can encode; None deletes."""
        self._decide()
        super().set_value(key, value)

    def _decide(self) -> None:
        if self._is_tallying:
            self._added.update(dict(zip(*self._tally.take(), strict=True)))
            self._undecided_bytes += self._tally_bytes
            self._tally_bytes, self._is_tallying, self._gave_tally = 0, False, False
        super()._decide()

    @property
    def is_dirty(self) -> bool:
        """True when anything was changed since the last commit."""
        return bool(self._tally_bytes) or super().is_dirty

    @property
    def dirty_bytes(self) -> int:
        """Keys and values changed since the last commit, those not encoded yet about."""
        return super().dirty_bytes + self._tally_bytes

    @property
    def held_bytes(self) -> int:
        """What the changes take in memory. In the core it is less, but not in the commit that copies them."""
        return super().held_bytes + self._tally_bytes + ENTRY_BYTES * len(self._tally)

    def limit_cache(self, bytes_max: int) -> None:
        """From now on at most so much is remembered."""
        super().limit_cache(bytes_max)
        self._tally.limit(bytes_max)

    def changes(self) -> Sequence[Change]:
        """The epoch so far: every changed key once, sorted, with its whole new value."""
        if self._tally_bytes:
            columns = self._tally.columns(self._reader.get_many)
            if columns is not None:
                self._gave_tally = True
                return ChangeColumns(*columns)
        return super().changes()

    def committed(self) -> None:
        """The epoch is on disk; its values stay known."""
        if self._gave_tally:
            assert self._undo is None, "a commit inside an undo scope"
            self._tally.committed()
            self._tally_bytes, self._gave_tally = 0, False
        else:
            assert not self._tally_bytes, "an epoch is encoded before it is committed"
            super().committed()

    def clear(self) -> None:
        """Drop the epoch; what was committed is as it was."""
        super().clear()
        self._tally.clear()
        self._tally_bytes, self._is_tallying, self._gave_tally = 0, False, False
