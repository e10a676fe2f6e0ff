"""Counts of keys in the core: of this epoch, and the totals that earlier ones have left on disk.

The twin in Python is what ``DecodedStore`` does with a ``Counter`` and its remembered values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stateflow.native.library import Core

_GENERATION_PART = 4
"""What a generation may take of the room: growing, its table may come to take twice as much."""
_GENERATION_BYTES_MIN = 16 << 10
"""Where it may take less, nothing is remembered: an empty table takes some of it."""
_UNBOUNDED = (1 << 63) - 1


class Tally:
    """How often keys were named since the last commit. Totals are signed big-endian integers of 64 bits.

    Not thread-safe.
    """

    def __init__(self, used: Core, bytes_max: int) -> None:
        self._core = used
        self._bytes_max = bytes_max
        self._added = _table(self, used)
        self._young = _table(self, used)
        self._old = _table(self, used)

    def __len__(self) -> int:
        """Keys that were named since the last commit."""
        return int(self._core.newest_count(self._added))

    @property
    def remembered_bytes(self) -> int:
        """What totals of earlier epochs take in memory."""
        return int(self._core.newest_bytes(self._young) + self._core.newest_bytes(self._old))

    def add(self, keys: Sequence[bytes]) -> tuple[int, int]:
        """One more for each of the keys; how many were not named before in this epoch, and the bytes of all."""
        return self._core.tally_add(self._added, keys)

    def columns(
        self, stored: Callable[[list[bytes]], list[bytes | None]]
    ) -> tuple[list[bytes], list[bytes]] | None:
        """The keys of this epoch in order, and their totals; ``stored`` is asked for those that are not remembered.

        None where a number on disk, or a total, is none of 64 bits: nothing has changed then.
        """
        self._core.newest_sort(self._added)
        unknown = self._core.tally_unknown(self._added, self._young, self._old)
        if unknown and not self._core.tally_learn(self._added, stored(unknown)):
            return None
        return None if self._core.tally_too_large(self._added) else self._core.tally_rows(self._added)

    def committed(self) -> None:
        """What ``columns`` gave last is on disk, and nothing was added since: the totals are remembered."""
        room = self._bytes_max // _GENERATION_PART
        if room < _GENERATION_BYTES_MIN:
            self.clear()
            return
        most = _UNBOUNDED
        if self._core.newest_bytes(self._young) + self._core.newest_bytes(self._added) > room:
            self._old, self._young = self._young, self._old
            self._core.newest_clear(self._young)
            most = room
        if not self._core.tally_remember(self._added, self._young, most):
            self._core.newest_clear(
                self._old
            )  # an earlier total of what has found no room must not come back
        self._core.newest_clear(self._added)

    def take(self) -> tuple[list[bytes], list[int]]:
        """Keys, and how often each was named in this epoch, as they came first; forgets all, totals too."""
        times = self._core.tally_times(self._added)
        self.clear()
        return times

    def forget(self) -> None:
        """Know nothing of what is on disk."""
        self._core.newest_clear(self._young)
        self._core.newest_clear(self._old)

    def clear(self) -> None:
        """Forget the epoch, and what is on disk."""
        self._core.newest_clear(self._added)
        self.forget()

    def limit(self, bytes_max: int) -> None:
        """From now on the totals of earlier epochs take at most so much."""
        self._bytes_max = bytes_max
        if self.remembered_bytes > bytes_max:
            self.forget()


def _table(owner: Tally, used: Core) -> int:
    table = used.newest_new(b"")
    weakref.finalize(owner, used.newest_free, table)
    return table
