"""A decoded store whose numbers are folded in the native core from one commit to the next.

It does what ``DecodedStore`` and an aggregate do together, byte for byte. What is folded stays in the core: keys are
looked up, numbers added, sorted and encoded without an object each. Before anybody writes otherwise, or reads bytes,
all of that is handed over, and goes on in Python until the next commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Integer
from stateflow.memory import ENTRY_BYTES
from stateflow.native.folds import Folding, Folds
from stateflow.store.base import Change, ChangeColumns, StoreReader
from stateflow.store.decoded import VALUE_BYTES, DecodedStore
from stateflow.store.dirty import DirtyStore
from stateflow.store.tallied import counted_in_place_of

if TYPE_CHECKING:
    from stateflow.native.library import Core

TIME_BYTES = 8
"""What stands before a key in the list of windows."""
_REFUSALS_MAX = 3
"""So many batches that the core would not fold: these values are none for it."""


class OpenedWindows(Protocol):
    """Where windows are listed by their time."""

    def add_entries(self, entries: Sequence[bytes]) -> None:
        """Windows were opened, each given as start ‖ store key, in order."""
        ...

    def last_start_ms(self) -> int | None:
        """Where the latest window starts; None without any."""
        ...


def decoded_in_place_of(
    store: DirtyStore, codec: Codec[Any], *, is_counted: bool, folding: Folding | None
) -> DecodedStore:
    """A store that keeps values decoded until the commit, in the place of one with nothing changed.

    ``is_counted``: what is done is mostly to count. ``folding``: what the core may do instead of an aggregate.
    """
    if is_counted:
        return counted_in_place_of(store, codec)
    if folding is not None:
        return folded_in_place_of(store, codec, folding)
    return DecodedStore.in_place_of(store, codec)


def folded_in_place_of(store: DirtyStore, codec: Codec[Any], folding: Folding) -> DecodedStore:
    """A store of numbers that are mostly folded, in the place of one with nothing changed.

    ``codec`` is the aggregate's own: ``Integer``, or MessagePack.
    """
    from stateflow.native.loading import core  # takes as long as much else of us, and is needed when it runs

    used = core()
    made = (DecodedStore if used is None else FoldedStore).in_place_of(store, codec)
    if isinstance(made, FoldedStore) and used is not None:
        made.fold_with(used, folding)
    return made


class FoldedStore(DecodedStore):
    """Folds in the core; all else as its parent does it."""

    def __init__(self, reader: StoreReader, codec: Codec[Any], read_cache_bytes: int) -> None:
        super().__init__(reader, codec, read_cache_bytes)
        self._bytes_max = read_cache_bytes
        self._folds_bytes = 0
        """What the keys changed in the core take, as ``dirty_bytes`` counts it."""
        self._is_folding = False
        """True while the core holds anything, be it of epochs before; nothing is remembered in Python then."""
        self._refusals = 0
        self._windows: OpenedWindows | None = None

    def fold_with(self, used: Core, folding: Folding) -> None:
        """What is folded here; before anything else is called."""
        self._used, self._folding = used, folding
        self._folds = self._made()

    def list_windows_in(self, windows: OpenedWindows) -> None:
        """The keys are those of windows, to be listed when they are opened; before anything else is called."""
        self._windows = windows
        self._folds = self._made()

    def _made(self) -> Folds:
        kept_as = "long" if self._codec == Integer else "msgpack"
        of_windows = self._windows is not None
        return Folds(self._used, self._folding, cast(Any, kept_as), of_windows=of_windows)

    def fold(self, keys: Sequence[bytes], values: Sequence[Any] | None) -> bool:
        """Fold a value into the number of each key; False, with nothing changed, where Python must do it.

        ``values`` may be None for a count. Windows that this opens are listed by ``list_opened``.
        """
        if self._undo is not None or self._added or self._changed or self._dirty:
            return False
        if self._refusals >= _REFUSALS_MAX or not keys:
            return not keys
        if not self._is_folding:
            self._begin()
        grown = self._folds.add(keys, values, self._reader.get_many)
        if grown is None:
            self._refusals += 1
            return False
        self._note_grown(*grown)
        return True

    def _begin(self) -> None:
        self._is_folding = True
        self._remembered.clear()
        if self._windows is not None:
            last_ms = self._windows.last_start_ms()
            self._folds.known_from(0 if last_ms is None else last_ms + 1)

    def _note_grown(self, grown: int, keys_bytes: int) -> None:
        self._folds_bytes += grown * VALUE_BYTES + keys_bytes

    def list_opened(self) -> None:
        """List the windows that were opened since this was called last."""
        if self._windows is not None and self._folds.opened:
            self._windows.add_entries(self._folds.take_opened())

    def values(self, keys: Sequence[bytes]) -> list[Any]:
        """The values in the order of the keys as this task left them; None for a key that is not there."""
        if self._is_folding:
            found = self._folds.numbers(keys, self._reader.get_many)
            if found is not None:
                return found
        return super().values(keys)

    def value(self, key: bytes) -> Any:
        """The value of one key as this task left it; None where there is none. Raises ``DecodeError``."""
        self._decide()
        return super().value(key)

    def set_value(self, key: bytes, value: Any) -> None:
        """Set the value of one key, which the codec can encode; None deletes."""
        self._decide()
        super().set_value(key, value)

    def set_values(self, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Set values, each of which the codec can encode; None deletes."""
        if self._is_folding and values.count(None) == len(values):
            grown = self._folds.delete(keys, self._reader.get_many)
            if grown is not None:
                self._note_grown(*grown)
                return
        super().set_values(keys, values)

    def _decide(self) -> None:
        if self._is_folding:
            self.list_opened()
            self._changed.update(zip(*self._folds.take(), strict=True))
            self._undecided_bytes += self._folds_bytes
            self._folds_bytes, self._is_folding = 0, False
        super()._decide()

    @property
    def is_dirty(self) -> bool:
        """True when anything was changed since the last commit."""
        return bool(self._folds_bytes) or super().is_dirty

    @property
    def dirty_bytes(self) -> int:
        """Keys and values changed since the last commit, those not encoded yet about, and windows to be listed."""
        return super().dirty_bytes + self._folds_bytes + self._unlisted_bytes

    @property
    def _unlisted_bytes(self) -> int:
        """What the list takes of windows that were opened, when they are listed; about."""
        opened = self._folds.opened
        return opened * (self._folds_bytes // len(self._folds) - VALUE_BYTES + TIME_BYTES) if opened else 0

    @property
    def held_bytes(self) -> int:
        """What the changes take in memory, in the commit that copies them, with the list of windows to be made."""
        entries = len(self._folds) + self._folds.opened
        changed_bytes = self._folds_bytes + self._unlisted_bytes
        return super().held_bytes + changed_bytes + ENTRY_BYTES * entries

    def limit_cache(self, bytes_max: int) -> None:
        """From now on at most so much is remembered."""
        super().limit_cache(bytes_max)
        self._bytes_max = bytes_max
        self._folds.limit(bytes_max)

    def changes(self) -> Sequence[Change]:
        """The epoch so far: every changed key once, sorted, with its whole new value."""
        if not self._is_folding:
            return super().changes()
        self.list_opened()
        return ChangeColumns(*self._folds.columns())

    def committed(self) -> None:
        """The epoch is on disk; its values stay known."""
        if self._is_folding:
            assert self._undo is None, "a commit inside an undo scope"
            assert not self._folds.opened, "windows are listed before they are committed"
            self._folds.committed(self._bytes_max)
            self._folds_bytes = 0
        else:
            super().committed()

    def clear(self) -> None:
        """Drop the epoch; what was committed is as it was."""
        super().clear()
        self._folds.clear()
        self._folds_bytes, self._is_folding = 0, False
