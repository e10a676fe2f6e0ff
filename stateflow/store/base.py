"""What a store can do: an ordered map of bytes, changed one epoch at a time.

An *epoch* is a sorted run of changed keys: what a task changes between two commits. ``apply`` takes one epoch
and the changelog position that it stands for, atomically.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import lt
from pathlib import Path
from typing import Protocol, SupportsIndex, overload

from stateflow.native.newest import OrderedRows

Change = tuple[bytes, bytes | None]
"""One changed key and its whole new value; None deletes it."""


@dataclass(frozen=True, slots=True)
class StorePosition:
    """How far into its changelog partition a store's content reaches.

    ``offset_next`` is the first offset not yet applied; ``topic_id`` says of which incarnation of the topic.
    ``applied_ms`` is the wall-clock time at which the content was all that the log said; 0 lets the store
    stamp the time of writing. A tail may be read onto it only while the log has every tombstone written
    since.
    """

    topic_id: str
    offset_next: int
    applied_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Content of one store: keys (an estimate), bytes in table files, bytes not flushed yet."""

    keys_estimated: int
    files_bytes: int
    memory_bytes: int


class StoreReader(Protocol):
    """The reading half of a store."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values in the order of the keys; sorted keys are fastest."""
        ...

    def scan(self, first: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``first`` ≤ key < ``after``, in byte order. Raises ``StateCorrupt``."""
        ...


class TaskStores(Protocol):
    """The local stores of one task, in one database: a family per store, and their changelog positions."""

    def reader(self, store: str) -> StoreReader:
        """The committed content of one store."""
        ...

    def position(self, store: str) -> StorePosition | None:
        """How far the store reaches, or None for a store that was never written."""
        ...

    def has_content(self, store: str) -> bool:
        """Whether there is any entry, of whatever position; False for a store that is not there."""
        ...

    def apply(self, epoch: Mapping[str, Sequence[Change]], positions: Mapping[str, StorePosition]) -> None:
        """Write the changes of several stores and their positions, all or nothing.

        Each sequence must be sorted by key without repetition. Durable after the next ``flush``; a crash
        loses only whole epochs, newest first, so the positions always tell the truth. Raises ``DiskFull``.
        """
        ...

    def load(self, store: str, changes: Sequence[Change], position: StorePosition) -> None:
        """``apply`` of one store for a long run of changes, as restore writes them.

        May write a sorted file and let the database take it in whole: the content is then on disk before the
        position is, so a crash in between repeats the run, which is harmless.
        """
        ...

    def flush(self) -> None:
        """Make everything applied so far durable on disk."""
        ...

    def checkpoint(self, directory: Path) -> dict[str, StorePosition]:
        """Flush, and make ``directory``, which must not exist, a database with this moment's content.

        Returns the positions in it. A crash leaves no such directory. Raises ``DiskFull``, ``StateCorrupt``.
        """
        ...

    def clear(self, store: str) -> None:
        """Drop the content and position of one store."""
        ...

    def derive(self, family: str) -> None:
        """Make sure that a derived store is there (see ``derived.py``); its content and mark stay as they are."""
        ...

    def close(self) -> None:
        """Flush and release the directory. No iterator of this database may be alive."""
        ...


class StateStore(StoreReader, Protocol):
    """One store as a running task sees it: reads go through to disk, writes wait for the commit."""

    @property
    def dirty_bytes(self) -> int:
        """Keys and values changed since the last commit."""
        ...

    def range(self, first: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """The first entries that ``scan`` would give, ``limit`` at most; costs no more than these."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set a key; visible at once to this task, logged and durable with the next commit."""
        ...

    def put_many(self, changes: Sequence[Change]) -> None:
        """Set or delete many keys."""
        ...

    def put_keys(self, keys: Sequence[bytes]) -> None:
        """Set many different keys in their order, which have no value."""
        ...

    def put_new_keys(self, keys: Sequence[bytes]) -> None:
        """The same of keys that are not there: one that is deleted before the commit leaves nothing behind."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key."""
        ...

    def delete_many(self, keys: Sequence[bytes]) -> None:
        """Remove many different keys."""
        ...


class ChangeColumns(Sequence[Change]):
    """Changes whose keys and values are two lists: no pair is made where nobody asks for one."""

    def __init__(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        assert len(keys) == len(values), "a value for each key"
        self.keys = keys
        self.values = values

    @classmethod
    def of(cls, changes: Sequence[Change]) -> ChangeColumns:
        """Any changes as columns; those that are some already as they are."""
        if isinstance(changes, ChangeColumns):
            return changes
        return cls([key for key, _ in changes], [value for _, value in changes])

    def __len__(self) -> int:
        return len(self.keys)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # lists have none

    def __iter__(self) -> Iterator[Change]:
        return zip(self.keys, self.values, strict=True)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Change | list[Change]:
        if isinstance(index, slice):
            return list(zip(self.keys[index], self.values[index], strict=True))
        at = int(index)
        return self.keys[at], self.values[at]


class SortedColumns(ChangeColumns):
    """Columns of the native core, which has sorted them: as with its rows nobody looks again."""


def assert_sorted(changes: Sequence[Change]) -> None:
    """An epoch is sorted by key, each key once; anything else is a bug of the caller."""
    if __debug__ and not isinstance(changes, OrderedRows | SortedColumns):
        keys = ChangeColumns.of(changes).keys
        assert all(map(lt, keys, keys[1:])), "an epoch must be sorted by key, without repetition"
