"""Tables that every task has whole: a topic that each worker reads itself, or data that came with the code.

A stream is joined with them by any key, without a re-key step. Nothing of them is state: they are in no changelog, so
what a record is joined with depends on when it is processed, as far as the table changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from stateflow.errors import GraphError
from stateflow.operators.steps.context import GlobalEntries, StageContext
from stateflow.operators.topics.topic_options import Topic

K = TypeVar("K")
V = TypeVar("V")

GLOBAL_BYTES_MAX = 128 << 20
"""What a global table may take in each worker unless its application says otherwise."""


class Lookup(Protocol):
    """Such a table as a task asks it."""

    def catch_up(self) -> None:
        """Take in what has changed by now."""
        ...

    def get(self, key: Any) -> Any:
        """The value of a key; None where there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPlace:
    """What a stage needs to know of such a table before it runs."""

    name: str
    topic: str = ""
    """The topic of a global table; empty for a static one."""
    bytes_max: int = 0
    fingerprint: str = ""
    """Of a static table's content; empty for a global one."""


class LookupTable(Generic[K, V]):
    """Base of these tables: keys of type K, values of type V."""

    place: LookupPlace

    def open(self, context: StageContext) -> Lookup:
        """The table inside a task, complete as far as it goes now."""
        raise NotImplementedError


class GlobalTable(LookupTable[K, V]):
    """The newest value of each key of a topic, read whole by each worker. Made by ``app.global_table``."""

    def __init__(self, topic: Topic[K, V], name: str, bytes_max: int) -> None:
        if bytes_max < 1:
            raise GraphError(
                f"The global table {name!r} may hold nothing.", action="Give bytes_max=… from 1 up."
            )
        self.place = LookupPlace(name=name, topic=topic.name, bytes_max=bytes_max)
        self._topic = topic

    def open(self, context: StageContext) -> Lookup:
        """Every record of the topic up to now has been read on return."""
        return _GlobalLookup(context.global_entries(self.place.topic, self.place.bytes_max), self._topic)


class _GlobalLookup:
    def __init__(self, entries: GlobalEntries, topic: Topic[Any, Any]) -> None:
        self._entries = entries
        self._topic = topic

    def catch_up(self) -> None:
        self._entries.catch_up()

    def get(self, key: Any) -> Any:
        found = self._entries.get(self._topic.key.encode(key))
        return None if found is None else self._topic.value.decode(found)


class StaticTable(LookupTable[K, V]):
    """A table that came with the code. Made by ``app.static_table``."""

    def __init__(self, name: str, rows: dict[K, V], fingerprint: str) -> None:
        self.place = LookupPlace(name=name, fingerprint=fingerprint)
        self._rows = rows

    def open(self, context: StageContext) -> Lookup:  # noqa: ARG002 - it is the same for all
        """The same rows for all tasks of a process."""
        return _StaticLookup(self._rows)


class _StaticLookup:
    def __init__(self, rows: dict[Any, Any]) -> None:
        self._rows = rows

    def catch_up(self) -> None:
        """It does not change."""

    def get(self, key: Any) -> Any:
        if not isinstance(key, Hashable):
            raise TypeError(f"a {type(key).__name__} cannot be a key of a table")
        return self._rows.get(key)
