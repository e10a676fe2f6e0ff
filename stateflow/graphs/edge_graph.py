"""A graph whose edges come as a stream, and what can be asked of it. What is iterated goes through a topic."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stateflow.callbacks import checked, checked_or_none
from stateflow.codec.scalar import String
from stateflow.codec.structured import MsgPackOf
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.graphs.components import Label, Told, components_operator
from stateflow.graphs.degrees import Degrees
from stateflow.graphs.edges import Changed, Seen, both_ends, edges_operator, seen
from stateflow.graphs.neighbourhoods import (
    Found,
    HopQuery,
    Visit,
    answer_operator,
    first_visit,
    walk_operator,
)
from stateflow.operators.dsl.port import port
from stateflow.operators.dsl.stream import Stream
from stateflow.operators.steps.error_policy import Fail, Policy

if TYPE_CHECKING:
    from stateflow.app import App

V = TypeVar("V")
M = TypeVar("M")
FAIL = Fail()
_DAY = timedelta(days=1)


class EdgeGraph:
    """An undirected graph without parallel edges; made by ``sf.graph``. Vertices are named by text."""

    def __init__(self, app: App, changes: Stream[str, Changed], within: timedelta | None) -> None:
        self._app = app
        self._changes = changes
        self._within = within

    def degrees(self, *, name: str) -> Stream[str, int]:
        """A vertex's number of neighbours, with each change of it. Kept in the stores ``<name>-…``."""
        return self._changes.process(Degrees, name=name)

    def components(self, *, name: str) -> Stream[str, str]:
        """By vertex the name of its connected component, which is that of its smallest vertex.

        Vertices tell each other through the topic ``<app>-<name>-loop``. While they do, a vertex may be said to be of
        one component and then of another; the newest is right once that topic is read to its end (which is what
        ``run --until-drained`` and the test driver wait for) and says nothing of how far edges have come since. An
        edge that is gone lets all vertices of its component be told anew.
        """
        loop = self._app.topic(f"{self._app.id}-{name}-loop", key=String, value=MsgPackOf(Told))
        told = self._app.stream(loop).key_by(_addressee, name=f"{name}-told", key=String)
        operator = components_operator(self._within)
        ports = (port(self._changes, operator.on_change), port(told, operator.on_told))
        known = self._app.process(operator, *ports, name=name)
        _of(known, Told).to(loop)
        return _of(known, Label).map(_label)

    def neighbourhoods(
        self, queries: Stream[Any, HopQuery], *, name: str, keep: timedelta = _DAY, on_error: Policy = FAIL
    ) -> Stream[str, dict[str, int]]:
        """By query the vertices at most its number of hops away, each with its distance; said once, when it is whole.

        Queries go from vertex to vertex through the topic ``<app>-<name>-loop``. Each vertex answers by the edges that
        it has when a query passes: the answer is that of one graph if its edges do not change meanwhile. Queries are
        remembered for ``keep`` of event time. Needs ``guarantee="exactly-once"``. A query with fewer than 0 hops
        follows ``on_error``.
        """
        if declared_ms(f"keep of {name!r}", keep) < 1:
            raise GraphError(
                f"{name!r} keeps its queries for no time.", action="Give keep=… of 1 ms or more."
            )
        loop = self._app.topic(f"{self._app.id}-{name}-loop", key=String, value=MsgPackOf(Visit))
        asked = queries.map(first_visit, on_error=on_error).key_by(_visited, name=f"{name}-asked", key=String)
        visits = self._app.stream(loop).key_by(_visited, name=f"{name}-visits", key=String)
        operator = walk_operator(keep)
        ports = (port(self._changes, operator.on_change), port(asked.merge(visits), operator.on_visit))
        walked = self._app.process(operator, *ports, name=name)
        _of(walked, Visit).to(loop)
        found = _of(walked, Found).key_by(_query, name=f"{name}-found", key=String, value=MsgPackOf(Found))
        return found.process(answer_operator(keep), name=f"{name}-answers")


def graph(
    app: App,
    edges: Stream[Any, V],
    *,
    ends: Callable[[V], tuple[str, str]],
    name: str,
    within: timedelta | None = None,
    removed: Callable[[V], object] | None = None,
    on_error: Policy = FAIL,
) -> EdgeGraph:
    """The graph whose edges a stream tells: ``sf.graph(app, calls, ends=lambda call: (call.one, call.other), name=…)``.

    ``ends`` gives the two vertices of a record. An edge is there from its first record, with ``within`` until event
    time is so long past its latest one. A record for which ``removed`` is true ends it at once, by the order in which
    records come. A record whose ends are one vertex is none (counted, ``self_loops_total``). Edges that are there are
    kept in the store ``<name>-last_ms``; each verb of the graph keeps the neighbours of each vertex for itself.
    """
    if within is not None and declared_ms(f"within of the graph {name!r}", within) < 1:
        raise GraphError(f"The edges of {name!r} are gone at once.", action="Give within=… of 1 ms or more.")

    checked(ends, "ends of the graph", name)
    checked_or_none(removed, "removed of the graph", name)

    def seen_of(value: V) -> Seen:
        return seen(ends(value), is_removed=removed is not None and bool(removed(value)))

    of_edges = edges.map(seen_of, value=MsgPackOf(Seen), on_error=on_error)
    changed = of_edges.key_by(_edge, name=f"{name}-edges", key=String).process(
        edges_operator(within), name=name
    )
    told = changed.flat_map(both_ends, value=MsgPackOf(Changed))
    return EdgeGraph(app, told.key_by(_vertex, name=f"{name}-vertices", key=String), within)


def _of(stream: Stream[str, Any], kind: type[M]) -> Stream[str, M]:
    """The values of one type."""
    return cast("Stream[str, M]", stream.filter(lambda value: isinstance(value, kind)))


def _edge(value: Seen) -> str:
    return value.edge


def _vertex(value: Changed) -> str:
    return value.vertex


def _addressee(value: Told) -> str:
    return value.to


def _visited(value: Visit) -> str:
    return value.to


def _query(value: Found) -> str:
    return value.query


def _label(value: Label) -> str:
    return value.label
