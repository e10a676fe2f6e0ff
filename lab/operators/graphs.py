"""Graphs whose edges come and go: degrees, connected components, and who is how far away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row
from stateflow.lab.operators.verb import Inputs, Rule, Verb, frozen, output

_OTHERS, _REMOVED_FROM, _HOPS = 7, 70, 4
Results = Iterable[tuple[Any, Any]]
Edges = dict[str, set[str]]


def graph_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("degrees of a graph", _degrees, _degrees_results),
        Verb("components of a graph", _components, _components_results),
        Verb("neighbourhoods in a graph", _near, _near_results, sides=2, is_by_order=True),
    ]


class Ask(sf.Operator[str, int, sf.HopQuery]):
    """Makes queries of numbers, each with an id of its own."""

    asked: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[sf.HopQuery]) -> None:
        """One more."""
        self.asked.set(self.asked.get() + 1)
        ctx.emit(_query(ctx.key, value, self.asked.get()))


def _query(key: str, value: int, number: int) -> sf.HopQuery:
    return sf.HopQuery(f"{key}-{number}", key, value % _HOPS)


def _graph(inputs: Inputs) -> sf.EdgeGraph:
    pairs = inputs.stream().map_pairs(lambda key, value: [key, value], value=sf.MsgPack)
    return sf.graph(
        inputs.app,
        pairs,
        ends=lambda pair: (pair[0], f"n{pair[1] % _OTHERS}"),
        name="graph",
        removed=lambda pair: pair[1] >= _REMOVED_FROM,
    )


def _degrees(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    _graph(inputs).degrees(name="degrees").to(topic)
    return topic, "newest"


def _components(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, str)
    _graph(inputs).components(name="components").to(topic)
    return topic, "newest"


def _near(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, dict)
    queries = inputs.stream("right").process(Ask, name="ask")
    _graph(inputs).neighbourhoods(queries, name="near").to(topic)
    return topic, "all"


def _told(edges: Edges, row: Row) -> None:
    """What a record does to the edges; vertices that have lost theirs stay."""
    one, other = row.key, f"n{row.given % _OTHERS}"
    if row.given < _REMOVED_FROM:
        edges[one].add(other)
        edges[other].add(one)
    elif other in edges.get(one, ()):
        edges[one].discard(other)
        edges[other].discard(one)


def _distances(edges: Edges, vertex: str, hops: int) -> dict[str, int]:
    found = {vertex: 0}
    newest = [vertex]
    for distance in range(1, hops + 1):
        newest = sorted({other for one in newest for other in edges.get(one, ())} - found.keys())
        found |= dict.fromkeys(newest, distance)
    return found


def _last(rows: Sequence[Row]) -> Edges:
    edges: Edges = defaultdict(set)
    for row in rows:
        _told(edges, row)
    return edges


def _degrees_results(rows: Sequence[Row]) -> Results:
    return [(vertex, len(others)) for vertex, others in _last(rows).items()]


def _components_results(rows: Sequence[Row]) -> Results:
    edges = _last(rows)
    return [(vertex, min(_distances(edges, vertex, len(edges)))) for vertex in edges]


def _near_results(rows: Sequence[Row]) -> Iterator[tuple[Any, Any]]:
    edges: Edges = defaultdict(set)
    asked: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.side == "left":
            _told(edges, row)
            continue
        asked[row.key] += 1
        query = _query(row.key, row.given, asked[row.key])
        yield query.id, frozen(_distances(edges, query.vertex, query.hops))
