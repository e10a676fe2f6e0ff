"""Looking up what a table holds for a key, from another step of the same task.

A table that is computed of others (filtered, mapped, joined) keeps nothing: what it holds is computed of what they
hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stateflow.codec.base import Codec
from stateflow.codec.timed import Timed
from stateflow.operators.steps.context import StageContext
from stateflow.store.base import StateStore

NEWEST_MS = (1 << 62) - 1
"""As of this time, what is newest."""


class TableReader(Protocol):
    """A table as other steps of its task read it."""

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """These keys will be asked for: one lookup on disk for all of them."""
        ...

    def get(self, key: bytes, as_of_ms: int) -> Timed[Any] | None:
        """The value of a key and the event time from which it holds; None for a key without one.

        A table with a history tells what it held at ``as_of_ms``; any other what it holds. Raises what the functions
        raise that the table is computed with.
        """
        ...


MakeReader = Callable[[StageContext], TableReader]
"""Makes the reader of a table inside a task of the stage that keeps it."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """What stands in a store of timed values."""

    store: StateStore
    codec: Codec[Timed[Any]]

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Look all of them up at once; the calls below find them in memory."""
        self.store.get_many(keys)

    def get(self, key: bytes, as_of_ms: int) -> Timed[Any] | None:  # noqa: ARG002 - it has no history
        """The newest value."""
        data = self.store.get(key)
        return None if data is None else self.codec.decode(data)


@dataclass(frozen=True, slots=True)
class ComputedTable:
    """A table of another's values; the function gives None for those that it leaves out."""

    table: TableReader
    function: Callable[[Any], Any]

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Of the other table."""
        self.table.prefetch(keys)

    def get(self, key: bytes, as_of_ms: int) -> Timed[Any] | None:
        """The function's result."""
        found = self.table.get(key, as_of_ms)
        if found is None:
            return None
        value = self.function(found.value)
        return None if value is None else Timed(found.timestamp_ms, value)
