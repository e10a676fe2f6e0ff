"""Joins of a stream with a table that the task has whole, by any key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from stateflow.codec.base import Codec
from stateflow.operators.steps.error_policy import Policy, dead_letter_topics
from stateflow.operators.steps.fields import Pick, picker
from stateflow.operators.steps.guard import Guard
from stateflow.operators.steps.rows import with_values, without
from stateflow.operators.steps.step import Environment, Step
from stateflow.operators.topics.lookup_tables import Lookup, LookupTable
from stateflow.operators.topology.graph import Graph, Node
from stateflow.record import RecordBatch

_Missing = Literal["missing"]
_MISSING: _Missing = "missing"

KeyOf = Callable[[bytes | None, Any], Any]
"""The key that a record is looked up by, of its own key and value; None for none."""


class LookupJoinStep(Step):
    """Each record with what the table holds for the key that it names."""

    def __init__(
        self,
        lookup: Lookup,
        key_of: KeyOf,
        function: Callable[[Any, Any], Any],
        guard: Guard,
        *,
        is_inner: bool,
    ) -> None:
        super().__init__()
        self._lookup = lookup
        self._key_of = key_of
        self._function = function
        self._guard = guard
        self._is_inner = is_inner

    def process(self, batch: RecordBatch) -> None:
        """Join, by what the table holds now."""
        self._lookup.catch_up()
        rows = list(zip(batch.keys, batch.values, strict=True))
        results, failed = self._guard.map(self._joined, rows, batch.offsets)
        batch = without(batch, failed)
        unmatched = [row for row, result in enumerate(results) if result is _MISSING]
        self.forward(without(with_values(batch, results), unmatched))

    def advance(self, watermark_ms: int) -> None:  # noqa: ARG002 - it follows no time
        """Follow the table also while nothing comes."""
        self._lookup.catch_up()

    def _joined(self, row: tuple[bytes | None, Any]) -> Any:
        key = self._key_of(*row)
        found = None if key is None else self._lookup.get(key)
        if found is None and self._is_inner:
            return _MISSING
        return self._function(row[1], found)


def lookup_join_node(
    graph: Graph,
    stream: Node,
    table: LookupTable[Any, Any],
    name: str,
    by: Pick | None,
    function: Callable[[Any, Any], Any],
    value: Codec[Any] | None,
    on_error: Policy,
    *,
    is_inner: bool,
) -> Node:
    """A stream joined with such a table; added to the graph."""
    graph.claim("join", name)
    key_of = _own_key(stream.key) if by is None else _picked(picker(by))

    def make(env: Environment) -> Step:
        guard = env.guard(name, on_error)
        return LookupJoinStep(table.open(env.context), key_of, function, guard, is_inner=is_inner)

    joined = Node(
        kind="inner_join" if is_inner else "left_join",
        name=name,
        parents=(stream,),
        make=make,
        key=stream.key,
        value=value,
        keyed=stream.keyed,
        outputs=dead_letter_topics(on_error),
        looks_up=(table.place,),
    )
    return graph.add(joined)


def _own_key(codec: Codec[Any]) -> KeyOf:
    return lambda key, _: None if key is None else codec.decode(key)


def _picked(pick: Callable[[Any], Any]) -> KeyOf:
    return lambda _, value: pick(value)
