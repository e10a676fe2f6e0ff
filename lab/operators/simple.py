"""Verbs without a notion of time: stateless ones, aggregates of all records, typed operators."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row, marked
from stateflow.lab.operators.verb import Inputs, Rule, Verb, frozen, keyed, output

_DELAY_MS = 3_000
Results = Iterable[tuple[Any, Any]]


def simple_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("map, filter, flat_map", _stateless, _stateless_results),
        Verb("branch, merge", _branched, _branched_results),
        Verb("key_by", _rekeyed, _rekeyed_results),
        *(_aggregate(name, aggregate, of) for name, (aggregate, of) in _AGGREGATES.items()),
        Verb("several aggregates", _several, _several_results),
        Verb("top_k", _top, _top_results),
        Verb("typed operator", _operator(Kept), _kept_results),
        Verb("function as operator", _function, _function_results),
        Verb("timers", _operator(Delayed), _delayed_results, late_ms=2_000),
        Verb("several inputs", _balance, _balance_results, sides=2),
    ]


# --- stateless ------------------------------------------------------------------------------------------


def _stateless(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().map(_double).peek(str).filter(_is_even_half).flat_map(_twice).to(topic)
    return topic, "all"


def _double(value: int) -> int:
    return 2 * value


def _is_even_half(value: int) -> bool:
    return value % 4 == 0


def _twice(value: int) -> list[int]:
    return [value, value + 1]


def _stateless_results(rows: Sequence[Row]) -> Results:
    return [(row.key, 2 * row.given + more) for row in rows if row.given % 2 == 0 for more in (0, 1)]


def _branched(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    small, even, rest = inputs.stream().branch(lambda value: value < 30, lambda value: value % 2 == 0)
    small.map(_double).merge(rest).to(topic)
    even.filter(lambda value: value > 70).to(topic)
    return topic, "all"


def _branched_results(rows: Sequence[Row]) -> Results:
    for row in rows:
        if row.given < 30:
            yield row.key, 2 * row.given
        elif row.given % 2 or row.given > 70:
            yield row.key, row.given


def _rekeyed(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().key_by(_group, name="again").count(name="n").to(topic)
    return topic, "newest"


def _group(value: int) -> str:
    return f"group {value % 4}"


def _rekeyed_results(rows: Sequence[Row]) -> Results:
    return [(group, len(values)) for group, values in _grouped(rows, lambda row: _group(row.given)).items()]


# --- aggregates -----------------------------------------------------------------------------------------


_AGGREGATES: dict[str, tuple[Callable[[], Any], Callable[[list[int]], Any]]] = {
    "count": (sf.count, len),
    "sum": (sf.sum, sum),
    "min": (lambda: sf.min(type=int), min),
    "max": (lambda: sf.max(type=int), max),
    "mean": (sf.mean, lambda values: sum(values) / len(values)),
    "first": (lambda: sf.first(type=int), lambda values: values[0]),
    "last": (lambda: sf.last(type=int), lambda values: values[-1]),
    "reduce": (
        lambda: sf.reduce(lambda one, two: (3 * one + two) % 1_009, type=int),
        lambda values: _folded(values[1:], values[0]),
    ),
    "fold": (
        lambda: sf.fold(lambda: 7, lambda one, two: (3 * one + two) % 1_009, type=int),
        lambda values: _folded(values, 7),
    ),
    "collect": (lambda: sf.collect(limit=6, type=int), lambda values: tuple(values[:6])),
    "histogram": (
        sf.histogram,
        lambda values: tuple(sorted((str(value), values.count(value)) for value in set(values))),
    ),
    "quantile": (lambda: sf.quantile(0.0), lambda values: float(min(values))),
}


def _folded(values: Sequence[int], first: int) -> int:
    for value in values:
        first = (3 * first + value) % 1_009
    return first


def _aggregate(name: str, aggregate: Callable[[], Any], of: Callable[[list[int]], Any]) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs, sf.Json)
        inputs.stream().aggregate(aggregate(), name="kept").to(topic)
        return topic, "newest"

    def expected(rows: Sequence[Row]) -> Results:
        return [(key, of(values)) for key, values in _grouped(rows, lambda row: row.key).items()]

    return Verb(name, build, expected)


def _several(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, sf.Json)
    inputs.stream().aggregate(name="kept", n=sf.count(), most=sf.max(type=int)).to(topic)
    return topic, "newest"


def _several_results(rows: Sequence[Row]) -> Results:
    for key, values in _grouped(rows, lambda row: row.key).items():
        yield key, frozen({"n": len(values), "most": max(values)})


def _top(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, sf.Json)
    sums = inputs.stream().sum(name="sums").map_pairs(keyed, value=sf.MsgPack)
    best = sf.top_k(3, by=lambda pair: pair[1], item=lambda pair: pair[0])
    sums.key_by(lambda _: "all", name="ranking", key=str).aggregate(best, name="top").to(topic)
    return topic, "newest"


def _top_results(rows: Sequence[Row]) -> Results:
    sums = {key: sum(values) for key, values in _grouped(rows, lambda row: row.key).items()}
    best = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    return [("all", tuple(best))]


def _grouped(rows: Sequence[Row], key_of: Callable[[Row], str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        groups[key_of(row)].append(row.given)
    return groups


# --- operators ------------------------------------------------------------------------------------------


class Kept(sf.Operator[str, int, list[Any]]):
    """Keeps each type of state, and tells what is in all of them."""

    total: sf.Value[int] = sf.state(default=0)
    count: sf.Counter = sf.state()
    newest: sf.ListOf[int] = sf.state(max_length=3)
    tally: sf.MapOf[int, int] = sf.state()
    seen: sf.SetOf[int] = sf.state()
    most: sf.Reducing[int] = sf.state(reduce=max, initial=0)
    history: sf.Versioned[int] = sf.state(history=timedelta(days=1))

    def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
        """Change each of them."""
        self.total.set(self.total.get() + value)
        self.count.add()
        self.newest.append(value)
        self.tally.merge(value % 3, 1, int.__add__)
        self.seen.add(value % 7)
        self.most.add(value)
        self.history.set(value)
        newest, tally, seen = list(self.newest), self.tally.items(), sorted(self.seen)
        state = [self.total.get(), self.count.get(), newest, tally, seen, self.most.get(), self.history.get()]
        ctx.emit(state)


def _kept_results(rows: Sequence[Row]) -> Results:
    for key, values in _grouped(rows, lambda row: row.key).items():
        tally = [(part, sum(value % 3 == part for value in values)) for part in range(3)]
        seen = sorted({value % 7 for value in values})
        kept = [sum(values), len(values), values[-3:], [each for each in tally if each[1]], seen, max(values)]
        yield key, frozen([*kept[:3], [list(each) for each in kept[3]], seen, kept[5], values[-1]])  # type: ignore[attr-defined]


class Delayed(sf.Operator[str, int, int]):
    """Tells each value again later, by a timer of its own."""

    waiting: sf.MapOf[str, int] = sf.state()

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        """Wait."""
        name = f"{ctx.timestamp_ms} {value}"
        self.waiting.merge(name, 1, int.__add__)
        ctx.timer(name, at=ctx.timestamp_ms + _DELAY_MS)

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:
        """The time is over: tell it as often as it came meanwhile."""
        for _ in range(self.waiting[name]):
            ctx.emit(int(name.split()[1]))
        self.waiting.remove(name)


def _delayed_results(rows: Sequence[Row]) -> Results:
    return [(row.key, row.given) for row, _ in marked(rows)]


def _operator(kind: type[sf.Operator[str, int, Any]]) -> Callable[[Inputs], tuple[sf.Topic[Any, Any], Rule]]:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs, sf.Json)
        inputs.stream().process(kind, name="kept").to(topic)
        return topic, "newest" if kind is Kept else "all"

    return build


def _run(value: int, ctx: sf.Context[int], total: sf.Value[int] = sf.state(default=0)) -> None:  # noqa: B008
    total.set(total.get() + value)
    ctx.emit(total.get())


def _function(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(_run, name="kept").to(topic)
    return topic, "all"


def _function_results(rows: Sequence[Row]) -> Iterator[tuple[Any, Any]]:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row.key] += row.given
        yield row.key, totals[row.key]


class Balance(sf.Operator[str, int, int]):
    """What has come on the left less what has come on the right."""

    total: sf.Value[int] = sf.state(default=0)

    def on_left(self, value: int, ctx: sf.Context[int]) -> None:
        """Add."""
        self._change(value, ctx)

    def on_right(self, value: int, ctx: sf.Context[int]) -> None:
        """Take out."""
        self._change(-value, ctx)

    def _change(self, by: int, ctx: sf.Context[int]) -> None:
        self.total.set(self.total.get() + by)
        ctx.emit(self.total.get())


def _balance(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    right = inputs.app.stream(inputs.right)
    ports = sf.port(inputs.stream(), Balance.on_left), sf.port(right, Balance.on_right)
    inputs.app.process(Balance, *ports, name="balance").to(topic)
    return topic, "newest"


def _balance_results(rows: Sequence[Row]) -> Results:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row.key] += row.given if row.side == "left" else -row.given
    return totals.items()
