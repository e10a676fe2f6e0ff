"""A decoded store whose numbers are folded in the native core from one commit to the next.

It does what ``DecodedStore`` and an aggregate do together, byte for byte. What is folded stays in the core: keys are
looked up, numbers added, sorted and encoded without an object each. Before anybody writes otherwise, or reads bytes,
all of that is handed over, and goes on in Python until the next commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from stateflow.codec.base import Codec
from stateflow.codec.scalar import Float, Integer
from stateflow.memory import ENTRY_BYTES
from stateflow.native.folds import Folding, Folds, Format
from stateflow.store.base import Change, SortedColumns, StoreReader
from stateflow.store.decoded import VALUE_BYTES, DecodedStore
from stateflow.store.dirty import DirtyStore

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


def decoded_in_place_of(store: DirtyStore, codec: Codec[Any], folding: Folding | None) -> DecodedStore:
    """A store that keeps values decoded until the commit, in the place of one with nothing changed.

    ``folding``: what the core may do in the place of an aggregate or an operator; it writes what the codec does.
    """
    if folding is None:
        return DecodedStore.in_place_of(store, codec)
    used = _core()
    made = (DecodedStore if used is None else FoldedStore).in_place_of(store, codec)
    if isinstance(made, FoldedStore) and used is not None:
        made.fold_with(used, folding)
    return made


def _core() -> Core | None:
    from stateflow.native.loading import core  # takes as long as much else of us, and is needed when it runs

    return core()


def _kept_as(codec: Codec[Any], folding: Folding) -> Format:
    if folding.operation == "mean":
        return "mean"
    described = codec.describe()  # which is that of the values, whatever codec may stand around theirs
    if described == Integer.describe():
        return "long"
    return "double" if described == Float.describe() else "msgpack"


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
        self._loaded_batch = 0
        """Which of the core's batches has the keys that are near, in their order."""
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
        return Folds(
            self._used,
            self._folding,
            _kept_as(self._codec, self._folding),
            of_windows=self._windows is not None,
        )

    def fold(self, keys: Sequence[bytes], values: Sequence[Any] | None, suffix: bytes = b"") -> bool:
        """Fold a value into the number of each key; False, with nothing changed, where Python must do it.

        ``values`` may be None for a count. Each key is what is given with the ``suffix`` behind it. Windows that this
        opens are listed by ``list_opened``.
        """
        if not keys:
            return True
        if not self._may_fold():
            return False
        grown = self._folds.add(keys, values, self._reader.get_many, suffix)
        if grown is None:
            self._refusals += 1
            return False
        self.near.clear()
        self._note_grown(*grown)
        return True

    def _may_fold(self) -> bool:
        """True with the core at work: nothing of this epoch is in Python."""
        self.write_back()
        if self._undo is not None or self._added or self._changed or self._dirty:
            return False
        if self._refusals >= _REFUSALS_MAX:
            return False
        if not self._is_folding:
            self._begin()
        return True

    def _begin(self) -> None:
        self._is_folding = True
        self._remembered.clear()
        if self._windows is not None:
            last_ms = self._windows.last_start_ms()
            self._folds.known_from(0 if last_ms is None else last_ms + 1)

    def _note_grown(self, grown: int, keys_bytes: int) -> None:
        self._folds_bytes += grown * VALUE_BYTES + keys_bytes

    def add_ones(self, keys: Sequence[bytes]) -> None:
        """Add one to the integer of each key, as often as the key is named; a key that is not there has 0."""
        if self._folding.operation != "count" or not self.fold(keys, None):
            self._decide()
            super().add_ones(keys)

    def load(self, keys: Sequence[bytes]) -> None:
        """Have the values of these different keys near, by one read of those that are not known."""
        if self._folding.operation == "assign" and self._may_fold():
            found = self._folds.numbers(keys, self._reader.get_many)
            if found is not None:
                self.near.clear()
                self.near.update(zip(keys, found, strict=True))
                self._loaded_batch = self._folds.batches
                return
            self._refusals += 1
        super().load(keys)

    def write_back(self) -> None:
        """What was set of keys that are near becomes part of the epoch. They stay near."""
        if self._is_folding and self.touched and len(self.touched) == len(self.near):
            is_last = self._loaded_batch == self._folds.batches
            grown = self._folds.add_to_last(list(self.near.values())) if is_last else None
            if grown is not None:
                self.touched.clear()
                self._note_grown(*grown)
        super().write_back()

    def _write_back(self, keys: list[bytes], values: list[Any]) -> None:
        if self._is_folding:
            grown = self._folds.add(keys, values, self._reader.get_many)
            if grown is not None:
                self._note_grown(*grown)
                return
            self._hand_over()
        super()._write_back(keys, values)

    def list_opened(self) -> None:
        """List the windows that were opened since this was called last."""
        if self._windows is not None and self._folds.opened:
            self._windows.add_entries(self._folds.take_opened())

    def values(self, keys: Sequence[bytes]) -> list[Any]:
        """The values in the order of the keys as this task left them; None for a key that is not there."""
        self.write_back()
        if self._is_folding:
            found = self._folds.numbers(keys, self._reader.get_many)
            if found is not None:
                return found
        return super().values(keys)

    def value(self, key: bytes) -> Any:
        """The value of one key as this task left it; None where there is none. Raises ``DecodeError``."""
        if key not in self.near:
            self._decide()
        return super().value(key)

    def set_value(self, key: bytes, value: Any) -> None:
        """Set the value of one key, which the codec can encode; None deletes."""
        if key in self.near:
            self.near[key] = value
            self.touched.add(key)
        else:
            self._decide()
            super().set_value(key, value)

    def set_values(self, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Set values, each of which the codec can encode; None deletes."""
        if self._is_folding and values.count(None) == len(values):
            self.write_back()
            grown = self._folds.delete(keys, self._reader.get_many)
            if grown is not None:
                self.near.clear()
                self._note_grown(*grown)
                return
        super().set_values(keys, values)

    def _decide(self) -> None:
        self.write_back()
        self._hand_over()
        super()._decide()

    def _hand_over(self) -> None:
        """From now on until the commit all is done in Python."""
        if self._is_folding:
            self.list_opened()
            self._changed.update(zip(*self._folds.take(), strict=True))
            self._undecided_bytes += self._folds_bytes
            self._folds_bytes, self._is_folding = 0, False

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
        self.write_back()
        if not self._is_folding:
            return super().changes()
        self.list_opened()
        return SortedColumns(*self._folds.columns())

    def committed(self) -> None:
        """The epoch is on disk; its values stay known."""
        if self._is_folding:
            assert self._undo is None, "a commit inside an undo scope"
            assert not self._folds.opened, "windows are listed before they are committed"
            self._folds.committed(self._bytes_max)
            self._folds_bytes = 0
            self.near.clear()
        else:
            super().committed()

    def clear(self) -> None:
        """Drop the epoch; what was committed is as it was."""
        super().clear()
        self._folds.clear()
        self._folds_bytes, self._is_folding = 0, False
