"""Graphs against networkx: edges that come, go by time and are removed, with crashes and repartitions in between."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import networkx
import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.graphs.neighbourhoods import Found, answer_operator
from stateflow.testing import TestDriver

pytestmark = pytest.mark.slow

T0 = 1_704_067_200_000
WITHIN_MS = 4_000
VERTICES = [f"v{number:02d}" for number in range(12)]


@dataclass
class Link:
    one: str
    other: str
    is_gone: bool = False


class Site:
    """An application with all verbs of a graph, and the same graph for networkx."""

    def __init__(self, rng: random.Random, within_ms: int | None) -> None:
        app = sf.App("x", guarantee="exactly-once")
        within = None if within_ms is None else timedelta(milliseconds=within_ms)
        self.links = app.topic("links", key=str, value=Link)
        self.queries = app.topic("queries", key=str, value=sf.HopQuery)
        self.degrees = app.topic("degrees", key=str, value=int)
        self.components = app.topic("components", key=str, value=str)
        self.answers = app.topic("answers", key=str, value=dict)
        graph = sf.graph(
            app,
            app.stream(self.links),
            ends=lambda link: (link.one, link.other),
            name="graph",
            within=within,
            removed=lambda link: link.is_gone,
        )
        graph.degrees(name="by-degree").to(self.degrees)
        graph.components(name="parts").to(self.components)
        graph.neighbourhoods(app.stream(self.queries), name="near").to(self.answers)
        self.driver = TestDriver(app, partitions=3, poll_records=rng.choice((None, 1, 5)))
        self.within_ms = within_ms
        self.edges: dict[tuple[str, str], int] = {}
        self.asked: dict[str, dict[str, int]] = {}
        self.now_ms = T0
        self.rng = rng

    def send_links(self, count: int) -> None:
        rows = []
        for _ in range(count):
            self.now_ms += self.rng.choice((0, 100, 500, 2_000))
            one, other = self.rng.sample(VERTICES, 2)
            is_gone = self.rng.random() < 0.3
            if is_gone and self.edges:
                one, other = self.rng.choice(sorted(self.edges))
            edge = min(one, other), max(one, other)
            if is_gone:
                self.edges.pop(edge, None)
            else:
                self.edges[edge] = self.now_ms
            rows.append(("-".join(edge), Link(one, other, is_gone), self.now_ms))
        self.driver.send_many(self.links, rows)

    def let_time_pass(self) -> None:
        if self.within_ms is not None:
            self.now_ms += self.rng.choice((0, 1_000, 5_000))
            self.driver.advance_event_time(self.now_ms)
            self.edges = {
                edge: at_ms for edge, at_ms in self.edges.items() if at_ms + self.within_ms > self.now_ms
            }

    def disturb(self) -> None:
        if self.rng.random() < 0.5:
            self.driver.crash(disk_lost=self.rng.random() < 0.5)
            self.driver.restore()
        else:
            self.driver.repartition(self.rng.choice((1, 2, 4)))

    def ask(self) -> None:
        query = sf.HopQuery(
            f"q{len(self.asked)}", self.rng.choice(VERTICES), self.rng.choice((0, 1, 2, 3, 5))
        )
        self.driver.send(self.queries, query, key="any", timestamp_ms=self.now_ms)
        graph = self.graph()
        graph.add_node(query.vertex)
        lengths = networkx.single_source_shortest_path_length(graph, query.vertex, cutoff=query.hops)
        self.asked[query.id] = dict(lengths)

    def graph(self) -> Any:
        return networkx.Graph(self.edges.keys())

    def check(self) -> None:
        graph = self.graph()
        parts = {vertex: min(part) for part in networkx.connected_components(graph) for vertex in part}
        told = {row.key: row.value for row in self.driver.rows(self.components)}
        assert {vertex: parts.get(vertex, vertex) for vertex in told} == told
        assert parts.keys() <= told.keys()
        degrees = {row.key: row.value for row in self.driver.rows(self.degrees) if row.key}
        assert {vertex: degree for vertex, degree in degrees.items() if degree} == dict(graph.degree())
        answers = [(row.key, row.value) for row in self.driver.rows(self.answers)]
        assert len(answers) == len(self.asked), "each is answered once"
        assert dict(answers) == self.asked


@pytest.mark.parametrize(("seed", "within_ms"), [(1, None), (1, WITHIN_MS), (2, WITHIN_MS)])
def test_degrees_components_and_neighbourhoods_are_those_of_networkx(
    seed: int, within_ms: int | None
) -> None:
    rng = random.Random(f"graphs-{seed}")
    site = Site(rng, within_ms)
    for _ in range(6):
        site.send_links(rng.choice((1, 3, 8)))
        site.let_time_pass()
        if rng.random() < 0.5:
            site.disturb()
        site.ask()
        site.check()


def test_a_long_chain_is_told_anew_when_it_breaks_and_forgotten_when_it_is_gone() -> None:
    site = Site(random.Random("chain"), 60_000)
    chain = list(itertools.pairwise(VERTICES))
    for one, other in reversed(chain):
        site.edges[one, other] = T0
    site.driver.send_many(site.links, [("any", Link(*pair), T0) for pair in site.edges])
    site.check()
    del site.edges["v05", "v06"]
    site.driver.send(site.links, Link("v05", "v06", is_gone=True), timestamp_ms=T0 + 1)
    site.check()
    labels = {row.key: row.value for row in site.driver.rows(site.components)}
    assert labels["v11"] == "v06"
    site.driver.end_input()
    tasks = site.driver._worker.tasks.values()
    stores = ("graph-last_ms", "parts-neighbours", "parts-known", "by-degree-degree", "near-neighbours")
    left = {
        store: sum(
            len(list(task.context.store(store).scan(b"", None)))
            for task in tasks
            if store in [entry.name for entry in task.wiring.stage.stores]
        )
        for store in stores
    }
    assert left == dict.fromkeys(stores, 0)


def test_a_vertex_is_no_neighbour_of_itself_and_an_unknown_one_is_alone() -> None:
    site = Site(random.Random("alone"), None)
    site.driver.send(site.links, Link("v00", "v00"), timestamp_ms=T0)
    site.driver.send(site.queries, sf.HopQuery("q", "v00", 3), timestamp_ms=T0)
    assert [row.value for row in site.driver.rows(site.answers)] == [{"v00": 0}]
    assert site.driver.rows(site.degrees) == []
    counted = [task.context.counters["self_loops_total"] for task in site.driver._worker.tasks.values()]
    assert sum(counted) == 1


def test_a_query_that_cannot_be_stops_the_application() -> None:
    site = Site(random.Random("query"), None)
    with pytest.raises(ProcessingError, match="goes -1 hops"):
        site.driver.send(site.queries, sf.HopQuery("q", "v00", -1), timestamp_ms=T0)


def test_more_that_comes_back_than_went_out_is_an_error() -> None:
    app = sf.App("x")
    found, out = app.topic("found", key=str, value=sf.MsgPackOf(Found)), app.topic("out", key=str, value=dict)
    kept = app.stream(found, co_partitioned=True).process(answer_operator(timedelta(hours=1)), name="answers")
    kept.to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(found, Found("q", "r", "a", 0, 1, 1), Found("q", "r", "b", 1, 1, 2), key="q", timestamp_ms=T0)
    with pytest.raises(ProcessingError, match="more has come back"):
        driver.send(found, Found("q", "r", "b", 1, 1, 1), key="q", timestamp_ms=T0)


def test_queries_that_are_asked_again_are_answered_again_and_a_savepoint_undoes_none_twice() -> None:
    site = Site(random.Random("again"), None)
    links = [("any", Link(*pair), T0) for pair in itertools.pairwise(VERTICES[:5])]
    site.driver.send_many(site.links, links)
    site.driver.savepoint("before")
    query = sf.HopQuery("q", "v01", 2)
    site.driver.send(site.queries, query, query, timestamp_ms=T0)
    near = {"v00": 1, "v01": 0, "v02": 1, "v03": 2}
    assert [row.value for row in site.driver.rows(site.answers)] == [near, near]
    site.driver.restore_savepoint("before")  # the visits that followed it are still in the loop
    assert [row.value for row in site.driver.rows(site.answers)] == [near, near, near, near]


def test_graphs_that_cannot_be_are_refused() -> None:
    app = sf.App("x")
    links = app.stream(app.topic("links", key=str, value=Link))
    with pytest.raises(GraphError, match="gone at once"):
        sf.graph(app, links, ends=lambda link: (link.one, link.other), name="a", within=timedelta(0))
    graph = sf.graph(app, links, ends=lambda link: (link.one, link.other), name="b")
    queries = app.stream(app.topic("queries", key=str, value=sf.HopQuery))
    with pytest.raises(GraphError, match="no time"):
        graph.neighbourhoods(queries, name="c", keep=timedelta(0))
