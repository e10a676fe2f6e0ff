"""Functions of the wrong kind are refused while the graph is built, with what to write instead."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.testing import TestDriver


async def waiting(*_given: Any) -> int:
    return 1


def yielding(*_given: Any) -> Iterator[int]:
    yield 1


async def both(*_given: Any) -> AsyncIterator[int]:
    yield 1


class Object:
    async def __call__(self, *_given: Any) -> int:
        return 1

    def several(self, *_given: Any) -> Iterator[int]:
        yield 1


class App:
    """An application with a stream, a keyed one and a table."""

    def __init__(self) -> None:
        self.app = sf.App("shop")
        self.source = self.app.topic("numbers", key=str, value=int)
        self.out = self.app.topic("out", key=str, value=int)
        self.stream: Any = self.app.stream(self.source)
        self.keyed: Any = self.app.stream(self.app.topic("keyed", key=str, value=int), co_partitioned=True)
        self.table: Any = self.app.table(self.app.topic("rows", key=str, value=int), name="rows")
        self.other: Any = self.app.table(self.app.topic("others", key=str, value=int), name="others")
        self.lookup = self.app.static_table({"a": 1}, name="static")


def ok(*_given: Any) -> Any:
    return 1


EACH_VERB: dict[str, Callable[[App, Any], object]] = {
    "map": lambda a, f: a.stream.map(f),
    "map_pairs": lambda a, f: a.stream.map_pairs(f),
    "filter": lambda a, f: a.stream.filter(f),
    "filter_pairs": lambda a, f: a.stream.filter_pairs(f),
    "peek": lambda a, f: a.stream.peek(f),
    "branch": lambda a, f: a.stream.branch(ok, f),
    "map_records": lambda a, f: a.stream.map_records(f),
    "key_by": lambda a, f: a.stream.key_by(f, name="by", key=str),
    "key_by_pairs": lambda a, f: a.stream.key_by_pairs(f, name="by", key=str),
    "to": lambda a, f: a.stream.to(f, among=[a.out]),
    "into": lambda a, f: a.stream.map_async(ok, of=ok, into=f),
    "of of map_async": lambda a, f: a.stream.map_async(ok, of=f, into=ok),
    "join": lambda a, f: a.keyed.join(a.table, f, name="j"),
    "left join": lambda a, f: a.keyed.left_join(a.table, f, name="j"),
    "by of the join": lambda a, f: a.stream.join(a.lookup, ok, name="j", by=f),
    "table filter": lambda a, f: a.table.filter(f),
    "table map": lambda a, f: a.table.map(f),
    "table join": lambda a, f: a.table.join(a.other, f, name="j"),
    "foreign join": lambda a, f: a.table.foreign_join(a.other, ok, f, name="j"),
    "by of the foreign join": lambda a, f: a.table.foreign_join(a.other, f, ok, name="j"),
    "group_by": lambda a, f: a.table.group_by(f, name="g", key=str),
    "add": lambda a, f: a.table.group_by(ok, name="g").aggregate(initial=int, add=f, remove=ok, name="n"),
    "remove": lambda a, f: a.table.group_by(ok, name="g").reduce(ok, f, name="n"),
    "in_order": lambda a, f: a.keyed.in_order(name="o", tie_break=f),
    "dedup": lambda a, f: a.keyed.dedup(name="o", within=timedelta(1), by=f),
    "top": lambda a, f: a.keyed.top(2, name="o", by=f, item=ok),
    "sum": lambda a, f: a.keyed.sum(f, name="o"),
    "reduce": lambda a, f: a.keyed.reduce(f, name="o"),
    "fold": lambda a, f: a.keyed.aggregate(sf.fold(0, f), name="o"),
    "merge": lambda a, f: a.keyed.aggregate(sf.fold(0, ok, merge=f), name="o"),
    "match": lambda a, f: a.keyed.match(
        sf.pattern(int).begin("one", ok).within(timedelta(hours=1)), f, name="m"
    ),
    "where": lambda a, f: sf.pattern(int).begin("one", f),
    "timestamp": lambda a, f: a.app.topic("timed", value=int, timestamp=f),
    "graph": lambda a, f: sf.graph(a.app, a.stream, ends=f, name="g"),
    "process": lambda a, f: a.keyed.process(f, name="p"),
    "on_timer": lambda a, f: a.keyed.process(operator, name="p", on_timer=f),
}


def operator(value: int, ctx: sf.Context[int]) -> None:
    ctx.emit(value)


@pytest.mark.parametrize("verb", EACH_VERB)
@pytest.mark.parametrize(
    "function",
    [
        pytest.param(waiting, id="async"),
        pytest.param(yielding, id="yield"),
        pytest.param(both, id="async yield"),
        pytest.param(functools.partial(waiting, 1), id="partial"),
        pytest.param(Object(), id="object"),
        pytest.param(Object().several, id="method"),
        pytest.param(5, id="no function"),
    ],
)
def test_every_verb_refuses_what_it_cannot_call(verb: str, function: Any) -> None:
    build = EACH_VERB[verb]
    with pytest.raises(GraphError, match=r"async def|yield|not a function") as refused:
        build(App(), function)
    assert refused.value.action


@pytest.mark.parametrize("verb", EACH_VERB)
def test_every_verb_takes_a_plain_function(verb: str) -> None:
    a, function = App(), operator if verb in ("process", "on_timer") else ok
    before = len(a.app._graph.nodes)
    assert EACH_VERB[verb](a, function) is not None or len(a.app._graph.nodes) > before


def test_a_flat_map_takes_a_generator_and_map_async_what_waits() -> None:
    a = App()
    a.stream.flat_map(yielding)
    a.stream.flat_map(Object().several)
    a.stream.flat_map_pairs(yielding)
    a.stream.map_async(waiting)
    a.stream.map_async(Object())
    for build in (a.stream.flat_map, a.stream.flat_map_pairs):
        with pytest.raises(GraphError, match="async def"):
            build(waiting)
    for function in (yielding, both):
        with pytest.raises(GraphError, match=r"yield|async def"):
            a.stream.map_async(function)


def test_the_refusal_names_verb_step_and_function() -> None:
    with pytest.raises(GraphError, match="filter 'large' was given the function 'waiting'") as refused:
        App().stream.filter(waiting, name="large")
    assert "map_async" in refused.value.action
    with pytest.raises(GraphError) as refused:
        App().stream.map("cents")
    assert "sf.col('cents')" in refused.value.action
    with pytest.raises(GraphError) as refused:
        App().stream.map(yielding)
    assert "flat_map" in refused.value.action


class Yielding(sf.Operator[str, int, int]):
    def on_record(self, value: int, ctx: sf.Context[int]) -> Iterator[int]:  # type: ignore[override]
        yield value


class Waiting(sf.Operator[str, int, int]):
    async def on_record(self, value: int, ctx: sf.Context[int]) -> None:  # type: ignore[override]
        ctx.emit(value)


class TimerYields(sf.Operator[str, int, int]):
    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        ctx.emit(value)

    def on_timer(self, name: str, ctx: sf.Context[int]) -> Iterator[int]:  # type: ignore[override]
        yield 1


class EveryWaits(sf.Operator[str, int, int]):
    every = sf.Every(timedelta(minutes=1))
    total: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        self.total.set(value)

    async def on_every(self, ctx: sf.Context[int]) -> None:  # type: ignore[override]
        ctx.emit(1)


@pytest.mark.parametrize(
    ("owner", "named"),
    [
        (Yielding, "Yielding.on_record of the operator 'p'"),
        (Waiting, "Waiting.on_record"),
        (TimerYields, "TimerYields.on_timer"),
        (EveryWaits, "EveryWaits.on_every"),
    ],
)
def test_methods_of_operators_are_plain_functions(owner: Any, named: str) -> None:
    with pytest.raises(GraphError, match=named):
        App().keyed.process(owner, name="p")
    a = App()
    with pytest.raises(GraphError, match=named):
        a.app.process(owner, sf.port(a.keyed, owner.on_record), name="p")


def test_what_yields_in_an_operator_is_told_to_emit() -> None:
    with pytest.raises(GraphError) as refused:
        App().keyed.process(Yielding, name="p")
    assert "ctx.emit(value)" in refused.value.action


@pytest.mark.parametrize("found", [sf.count, sf.sum, 5, None])
def test_an_aggregate_is_made_by_a_call(found: Any) -> None:
    with pytest.raises(GraphError, match="is not an aggregate") as refused:
        App().keyed.aggregate(name="x", n=found)
    if callable(found):
        assert f"sf.{found.__name__}(" in refused.value.action
    with pytest.raises(GraphError, match="is not an aggregate"):
        App().keyed.aggregate(found, name="x")


def declaring(**options: Any) -> type[sf.Operator[str, int, int]]:
    class Totals(sf.Operator[str, int, int]):
        total: sf.Value[int] = sf.state(default=0, **options)

        def on_record(self, value: int, ctx: sf.Context[int]) -> None:
            self.total.set(value)

    return Totals


def reducing(function: Any) -> type[sf.Operator[str, int, int]]:
    class Sums(sf.Operator[str, int, int]):
        total: sf.Reducing[int | None] = sf.state(reduce=function)

        def on_record(self, value: int, ctx: sf.Context[int]) -> None:
            self.total.add(value)

    return Sums


@pytest.mark.parametrize("function", [waiting, yielding, both], ids=lambda function: function.__name__)
def test_functions_of_a_state_are_refused_likewise(function: Any) -> None:
    owners = {
        "the merge of the state Totals.total": declaring(merge=function),
        "the index 'parity' of the state Totals.total": declaring(index={"parity": function}),
        "the migration 1 of the state Totals.total": declaring(version=2, migrations={1: function}),
        "the reduce of the state Sums.total": reducing(function),
    }
    for named, owner in owners.items():
        with pytest.raises(GraphError, match=named):
            App().keyed.process(owner, name="p")
    with pytest.raises(GraphError, match="not a function"):
        App().keyed.process(declaring(merge=1), name="p")


class Limit(sf.Operator[str, int, int]):
    most = 10
    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        if value > self.most:
            ctx.emit(value)


class Strict(Limit):
    most = 5


class WantsArguments(Limit):
    def __init__(self, most: int) -> None:
        self.most = most


def test_an_operator_is_given_as_a_class_that_needs_no_arguments() -> None:
    with pytest.raises(GraphError, match="an instance of WantsArguments") as refused:
        App().keyed.process(WantsArguments(5), name="p")
    assert "class attributes" in refused.value.action
    with pytest.raises(GraphError, match=r"WantsArguments\.__init__ wants arguments"):
        App().keyed.process(WantsArguments, name="p")
    with pytest.raises(GraphError, match="not a class derived"):
        App().keyed.process(functools.partial(WantsArguments, 5), name="p")
    a = App()
    with pytest.raises(GraphError, match="an instance of WantsArguments"):
        a.app.process(WantsArguments(5), sf.port(a.keyed, Limit.on_record), name="p")  # type: ignore[arg-type]


def above(
    value: int,
    ctx: sf.Context[int],
    *,
    most: int,
    seen: sf.Value[int] = sf.state(default=0),  # noqa: B008 - how state is declared
) -> None:
    seen.set(seen.get() + 1)
    if value > most:
        ctx.emit(value)


class Above:
    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(
        self,
        value: int,
        ctx: sf.Context[int],
        seen: sf.Value[int] = sf.state(default=0),  # noqa: B008 - how state is declared
    ) -> None:
        above(value, ctx, most=self.most, seen=seen)


@pytest.mark.parametrize("operator", [Strict, functools.partial(above, most=5), Above(5)])
def test_ways_to_give_an_operator_its_parameters(operator: Any) -> None:
    a = App()
    a.keyed.process(operator, name="p").to(a.out)
    driver = TestDriver(a.app)
    driver.send(a.app.topic("keyed", key=str, value=int), 5, 6, key="k")
    assert [row.value for row in driver.rows(a.out)] == [6]
