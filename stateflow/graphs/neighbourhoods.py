"""Which vertices are at most so many edges away: a question that walks through the graph and comes back.

A *visit* goes from vertex to vertex, one step shorter each time, and ends at one that was visited with as many steps
left. Each visit carries a *credit*: the first has all of it, and what a vertex does not hand on to others it sends
back with what it found. The answer is whole when all credit is back, in whatever order it came. A credit is a power of
two below 1, written as its exponent; what is sent back is a number of such parts.

Each time that a query is asked is a *run* of its own: visits that were on their way before the application was taken
back to a savepoint belong to another one than those of the query when it is read again.
"""

from __future__ import annotations

import os
from datetime import timedelta

import msgspec

from stateflow.errors import ProcessingError
from stateflow.graphs.edges import Changed
from stateflow.operators.classes.operator import Context, Operator
from stateflow.state.declaration import state
from stateflow.state.mapof import MapOf
from stateflow.state.setof import SetOf

HOPS_MAX = 1_000


class HopQuery(msgspec.Struct, frozen=True):
    """Which vertices are at most ``hops`` edges away from ``vertex``? ``id`` is the key of the answer."""

    id: str
    vertex: str
    hops: int


class Visit(msgspec.Struct, array_like=True, frozen=True):
    """A question on its way."""

    to: str
    query: str
    run: str
    left: int
    """Edges that it may still go."""
    distance: int
    """Edges that it has gone."""
    exponent: int
    """Its credit is 2 to the power of minus that."""


class Found(msgspec.Struct, array_like=True, frozen=True):
    """What a visit came to: a vertex, how far away it is, and the credit that was not handed on."""

    query: str
    run: str
    vertex: str
    distance: int
    parts: int
    exponent: int
    """``parts`` times 2 to the power of minus that."""


Out = Visit | Found


def first_visit(query: HopQuery) -> Visit:
    """A question where it begins. Raises ``ValueError`` for a number of hops that cannot be."""
    if not 0 <= query.hops <= HOPS_MAX:
        raise ValueError(f"the query {query.id!r} goes {query.hops} hops: give 0 to {HOPS_MAX}")
    return Visit(query.vertex, query.id, os.urandom(8).hex(), query.hops, 0, 0)


class Walk(Operator[str, object, Out]):
    """A vertex as questions pass it; subclasses declare how long it remembers them."""

    neighbours: SetOf[str] = state()
    visited: MapOf[str, int]

    def on_change(self, change: Changed, ctx: Context[Out]) -> None:  # noqa: ARG002 - called with both
        """An edge of the vertex came or went."""
        if change.is_added:
            self.neighbours.add(change.other)
        else:
            self.neighbours.discard(change.other)

    def on_visit(self, visit: Visit, ctx: Context[Out]) -> None:
        """Hand the question on, unless it has been here with as many steps left, and send the rest back."""
        before = self.visited.get(visit.run, -1)
        further: list[str] = []
        if visit.left > before:
            self.visited.put(visit.run, visit.left)
            further = list(self.neighbours) if visit.left else []
        halvings = len(further).bit_length()
        exponent = visit.exponent + halvings
        for each in further:
            ctx.emit(Visit(each, visit.query, visit.run, visit.left - 1, visit.distance + 1, exponent))
        parts = (1 << halvings) - len(further)
        ctx.emit(Found(visit.query, visit.run, visit.to, visit.distance, parts, exponent))


def walk_operator(keep: timedelta) -> type[Walk]:
    """The operator; questions are remembered for ``keep`` of event time."""

    class Remembering(Walk):
        visited: MapOf[str, int] = state(ttl=keep)

    return Remembering


class Answer(Operator[str, Found, dict[str, int]]):
    """Collects what is found for one query, run by run; subclasses declare how long an unfinished answer is kept."""

    distances: MapOf[str, MapOf[str, int]]
    credit: MapOf[str, list[str]]

    def on_record(self, value: Found, ctx: Context[dict[str, int]]) -> None:
        """Add to it; pass it on when it is whole."""
        parts, exponent = self._credit_with(value)
        if parts > 1 << exponent:
            raise ProcessingError(
                f"more has come back of the query {value.query!r} than was sent out.",
                action="Run with guarantee='exactly-once'.",
            )
        distances = self.distances[value.run]
        distances.merge(value.vertex, value.distance, min)
        if parts == 1 << exponent:
            ctx.emit(dict(sorted(distances.items())))
            distances.clear()
            self.credit.remove(value.run)
        else:
            self.credit.put(value.run, [hex(parts), hex(exponent)])

    def _credit_with(self, found: Found) -> tuple[int, int]:
        """What is back with this: a number of parts, each 2 to the power of minus the exponent."""
        parts, exponent = (int(each, 16) for each in self.credit.get(found.run) or ("0x0", "0x0"))
        common = max(exponent, found.exponent)
        return (parts << common - exponent) + (found.parts << common - found.exponent), common


def answer_operator(keep: timedelta) -> type[Answer]:
    """The operator; an answer that never becomes whole is forgotten after ``keep`` of event time."""

    class Kept(Answer):
        distances: MapOf[str, MapOf[str, int]] = state(ttl=keep)
        credit: MapOf[str, list[str]] = state(ttl=keep)

    return Kept
