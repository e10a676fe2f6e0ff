"""A verb under test: an application that uses it, and what plain Python says of the same log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import stateflow as sf
from stateflow.lab.operators.logs import Row, Side, random_log
from stateflow.testing.driver import Row as Given

Rule = Literal["all", "newest"]
"""``all``: each result once, in any order. ``newest``: the last result of each key, where None is none."""

Results = Counter[tuple[Any, Any]] | dict[Any, Any]


class Inputs(NamedTuple):
    """The application and its two source topics, of keys ``str`` and values ``int``."""

    app: sf.App
    left: sf.Topic[str, int]
    right: sf.Topic[str, int]

    def stream(self, side: Side = "left") -> sf.Stream[str, int]:
        """A source topic, partitioned by the application under its own keys."""
        topic = self.left if side == "left" else self.right
        return (
            self.app.stream(topic)
            .map_pairs(keyed, value=sf.MsgPack)
            .key_by(_first, name=f"by-key-{side}", key=str)
            .map(_second, value=int)
        )

    def table(self, side: Side = "left", **options: Any) -> sf.Table[str, int]:
        """A source topic as a table."""
        topic = self.left if side == "left" else self.right
        return self.app.table(topic, name=f"table-{side}", **options)


@dataclass(frozen=True)
class Verb:
    """One verb, or one variant of it."""

    name: str
    build: Callable[[Inputs], tuple[sf.Topic[Any, Any], Rule]]
    """Builds the graph; returns the topic of its results and how they are compared."""
    expected: Callable[[Sequence[Row]], Iterable[tuple[Any, Any]]]
    """Key and value of each result, in an order that decides which is the newest of a key."""
    sides: int = 1
    is_by_order: bool = False
    """Whether results depend on which topic is read first: then records are processed one after the other."""
    has_tombstones: bool = False
    late_ms: int = 0
    pace: int = 1
    """How much further apart the records are than usual."""
    is_clocked: bool = False
    """Whether it waits for the clock: then that moves between the records, and far in the end."""
    is_scalable: bool = True
    """Whether its state can be repartitioned."""

    def log(self, rng: random.Random) -> list[Row]:
        """A log that suits it."""
        return random_log(
            rng,
            sides=self.sides,
            has_tombstones=self.has_tombstones,
            late_ms=self.late_ms,
            pace=self.pace,
        )

    def results(self, found: Iterable[tuple[Any, Any]], rule: Rule) -> Results:
        """Results in a form that can be compared."""
        if rule == "all":
            return Counter(found)
        return {key: value for key, value in dict(found).items() if value is not None}


def output(inputs: Inputs, value: Any = int, key: Any = str) -> sf.Topic[Any, Any]:
    """The topic of the results."""
    return inputs.app.topic("out", key=key, value=value)


def pairs(rows: Iterable[Given[Any, Any]]) -> list[tuple[Any, Any]]:
    """Key and value of each record of an output topic; lists become tuples, so that they can be counted."""
    return [(row.key, frozen(row.value)) for row in rows]


def frozen(value: Any) -> Any:
    """A value that can be counted."""
    if isinstance(value, list):
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return tuple(sorted((key, frozen(each)) for key, each in value.items()))
    return value


def keyed(key: str, value: float) -> list[Any]:
    """Key and value as one value."""
    return [key, value]


def _first(pair: list[Any]) -> str:
    return str(pair[0])


def _second(pair: list[Any]) -> int:
    return int(pair[1])
