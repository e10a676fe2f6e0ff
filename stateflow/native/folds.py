"""Numbers folded by key in the core: counts, sums, smallest, largest, newest ones, of this epoch and of earlier ones.

The twin in Python is what ``DecodedStore`` and the aggregates do with decoded values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from stateflow.native.library import Core

Operation = Literal["count", "sum", "least", "most", "assign", "mean"]
"""``assign``: the newest value is the number, and None deletes it."""
_OPERATIONS: tuple[Operation, ...] = ("count", "sum", "least", "most", "assign", "mean")
Format = Literal["long", "msgpack", "double", "mean"]
"""How numbers are kept on disk: 8 bytes big-endian of an integer or a float, MessagePack's shortest form, or its array
of count and sum, as which a mean comes and goes."""
_FORMATS: tuple[Format, ...] = ("long", "msgpack", "double", "mean")
_INTEGERS, _FLOATS = 2, 4
"""As bits, in ``kinds``."""

Number = int | float | tuple[int, int | float] | None
Stored = Callable[[list[bytes]], list[bytes | None]]


@dataclass(frozen=True, slots=True)
class Folding:
    """What is done with a value, and which results may be kept; others are left to Python."""

    operation: Operation
    integers: bool = True
    floats: bool = False
    skips_none: bool = False
    """A value None changes nothing, though its key counts as changed."""


class Folds:
    """The numbers of one store. Not thread-safe.

    Where it refuses a batch (False, None), nothing has changed.
    """

    def __init__(self, used: Core, folding: Folding, kept_as: Format, *, of_windows: bool) -> None:
        self._core = used
        self._counts = folding.operation == "count"
        kinds = _INTEGERS * folding.integers + _FLOATS * folding.floats
        operation, kept = _OPERATIONS.index(folding.operation), _FORMATS.index(kept_as)
        self._folds = used.folds_new(operation, kept, kinds, folding.skips_none, of_windows)
        self.batches = 0
        """So many batches of keys were begun."""
        weakref.finalize(self, used.folds_free, self._folds)

    def __len__(self) -> int:
        """Keys that were changed since the last commit."""
        return int(self._core.folds_changed(self._folds))

    @property
    def opened(self) -> int:
        """Windows to be listed."""
        return int(self._core.folds_opened(self._folds))

    @property
    def size_bytes(self) -> int:
        """What all of it takes in memory."""
        return int(self._core.folds_bytes(self._folds))

    def known_from(self, start_ms: int) -> None:
        """No window that begins then or later has a key on disk."""
        self._core.folds_known_from(self._folds, start_ms)

    def add(
        self, keys: Sequence[bytes], values: Sequence[object] | None, stored: Stored, suffix: bytes = b""
    ) -> tuple[int, int] | None:
        """Fold a value into each key's number; how many were not changed before, and the bytes of their keys.

        ``values`` are left out of a count. ``stored`` is asked for keys that are not remembered, in order. Each key is
        what is given with the ``suffix`` behind it.
        """
        if not self._begin(keys, stored, suffix):
            return None
        return self._core.folds_add(self._folds, [] if self._counts or values is None else values)

    def add_to_last(self, values: Sequence[object]) -> tuple[int, int] | None:
        """``add`` for the keys of the last batch, in its order."""
        return self._core.folds_add(self._folds, values)

    def numbers(self, keys: Sequence[bytes], stored: Stored) -> list[Number] | None:
        """What the keys have come to; None in the list where there is nothing."""
        return self._core.folds_numbers(self._folds) if self._begin(keys, stored) else None

    def delete(self, keys: Sequence[bytes], stored: Stored) -> tuple[int, int] | None:
        """Delete the numbers of keys; returns what ``add`` does."""
        return self._core.folds_delete(self._folds) if self._begin(keys, stored) else None

    def _begin(self, keys: Sequence[bytes], stored: Stored, suffix: bytes = b"") -> bool:
        self.batches += 1
        unknown = self._core.folds_begin(self._folds, keys, suffix)
        return not unknown or self._core.folds_learn(self._folds, stored(unknown))

    def columns(self) -> tuple[list[bytes], list[bytes | None]]:
        """What was changed, in the order of the keys, as it is kept on disk; None for what was deleted."""
        self._core.folds_order(self._folds)
        return self._core.folds_encoded(self._folds)

    def take(self) -> tuple[list[bytes], list[Number]]:
        """What was changed, in any order; forgets everything."""
        changed = self._core.folds_objects(self._folds)
        self.clear()
        return changed

    def take_opened(self) -> list[bytes]:
        """Windows of which there was nothing before, once: start (uint64 big-endian) ‖ key, in this order."""
        self._core.folds_order(self._folds)
        return self._core.folds_take_opened(self._folds)

    def committed(self, bytes_max: int) -> None:
        """What ``columns`` gave last is on disk; at most ``bytes_max`` of it are remembered."""
        self._core.folds_committed(self._folds, bytes_max)

    def limit(self, bytes_max: int) -> None:
        """Remember at most so much, beside what was changed."""
        self._core.folds_limit(self._folds, bytes_max)

    def clear(self) -> None:
        """Forget everything."""
        self._core.folds_clear(self._folds)
