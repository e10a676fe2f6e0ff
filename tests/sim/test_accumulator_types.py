"""Accumulators of which nobody said the type: the same results in whatever batches, or an error that asks for it."""

from __future__ import annotations

import datetime
import enum
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import EncodeError
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.testing import TestDriver

HOUR = datetime.timedelta(hours=1)


class Kind(enum.Enum):
    BUY = "buy"
    SELL = "sell"


@dataclass
class Order:
    number: int
    kind: Kind = Kind.BUY
    day: datetime.date = datetime.date(2024, 1, 1)
    price: Decimal = Decimal("1.5")
    tags: list[Any] = field(default_factory=list)


@dataclass
class Total:
    orders: int = 0


def add(total: Total, _order: Order) -> Total:
    return Total(total.orders + 1)


def joined(one: Total, two: Total) -> Total:
    return Total(one.orders + two.orders)


def by_kind(counts: Any, order: Order) -> Any:
    counts[order.kind] = counts.get(order.kind, 0) + 1
    return counts


def by_kind_annotated(counts: dict[Kind, int], order: Order) -> dict[Kind, int]:
    return {**counts, order.kind: counts.get(order.kind, 0) + 1}


def day_of(order: Order) -> datetime.date:
    return order.day


ORDERS = [Order(number, Kind.SELL if number % 2 else Kind.BUY) for number in range(4)]
MADE: dict[str, Callable[[], Aggregate[Any, Any, Any]]] = {
    "annotated": lambda: sf.fold(Total(), add, merge=joined),
    "a class": lambda: sf.fold(Total, lambda total, _: Total(total.orders + 1), merge=joined),
    "annotated keys": lambda: sf.fold(dict, by_kind_annotated, merge=lambda one, two: {**one, **two}),
    "a tuple": lambda: sf.fold((0, 0), lambda pair, _: (pair[0] + 1, pair[1]), merge=lambda one, _: one),
    "a set": lambda: sf.fold(set, lambda seen, order: seen | {order.number}, merge=set.union),
    "a decimal": lambda: sf.fold(Decimal(0), lambda total, order: total + order.price, merge=Decimal.__add__),
    "plain": lambda: sf.fold(0, lambda total, order: total + order.number / 2, merge=float.__add__),
    "first": sf.first,
    "last": sf.last,
    "first, picked": lambda: sf.first("day"),
    "max, picked": lambda: sf.max("price"),
    "max, by a function": lambda: sf.max(day_of),
    "reduce": lambda: sf.reduce(lambda one, _: one),
    "collect": lambda: sf.collect(limit=3),
    "collect, picked": lambda: sf.collect("kind", limit=3),
}
WINDOWS = {
    "none": None,
    "tumbling": sf.Tumbling(HOUR),
    "session": sf.Session(HOUR),
    "sliding": sf.Sliding(HOUR),
    "count": sf.CountWindow(10),
}


def driver_of(
    made: Callable[[sf.Stream[str, Order]], sf.Stream[Any, Any]], value: Any = Order
) -> tuple[TestDriver, Any, Any, Any]:
    app = sf.App("orders")
    orders, out = app.topic("orders", key=str, value=value), app.topic("out", value=str)
    dead = app.topic("dead", value=sf.Json)
    made(app.stream(orders, co_partitioned=True)).map(repr, name="shown").to(out)
    return TestDriver(app, partitions=1), orders, out, dead


def shown(
    made: Callable[[sf.Stream[str, Order]], sf.Stream[Any, Any]], batches: Sequence[Sequence[Order]]
) -> str:
    driver, orders, out, _ = driver_of(made)
    for batch in batches:
        driver.send_many(orders, [("a", order, 1_000) for order in batch])
    last: str = driver.output(out)[-1].value
    return last


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", MADE)
def test_results_do_not_depend_on_batches(name: str, window: str) -> None:
    def made(stream: sf.Stream[str, Order]) -> sf.Stream[Any, Any]:
        bounds = WINDOWS[window]
        return (stream if bounds is None else stream.window(bounds)).aggregate(MADE[name](), name="n")

    assert shown(made, [ORDERS]) == shown(made, [[order] for order in ORDERS])


def test_several_aggregates_keep_their_types() -> None:
    def made(stream: sf.Stream[str, Order]) -> sf.Stream[Any, Any]:
        return stream.aggregate(name="n", orders=sf.count(), first=sf.first(), most=sf.max("price"))

    found = shown(made, [[order] for order in ORDERS])
    assert found == repr({"orders": 4, "first": ORDERS[0], "most": Decimal("1.5")}) == shown(made, [ORDERS])


@pytest.mark.parametrize("verb", ["min", "max"])
def test_verbs_keep_what_they_pick(verb: str) -> None:
    found = shown(lambda stream: getattr(stream, verb)("price", name="n"), [ORDERS, ORDERS])
    assert found == "Decimal('1.5')"


@pytest.mark.parametrize("size", [1, 4])
def test_keys_of_an_enum_are_refused_and_the_type_is_asked_for(size: int) -> None:
    driver, orders, _, _ = driver_of(lambda stream: stream.aggregate(sf.fold(dict, by_kind), name="n"))
    with pytest.raises(EncodeError, match=r"step 'n' at orders\[0\] offset 0.*state 'n'.*type=") as raised:
        driver.send_many(orders, [("a", order, 1_000) for order in ORDERS[:size]])
    assert raised.value.fields["state"] == "n"


@pytest.mark.parametrize(
    "made",
    [
        lambda: sf.last(lambda order: order.kind),
        lambda: sf.fold(Counter, lambda counts, order: counts + Counter([order.number])),
        lambda: sf.fold(list, lambda kept, order: [*kept, (order.number, 1)]),
        lambda: sf.mean("price"),
        lambda: sf.collect(lambda order: {"at": order.day}, limit=3),
    ],
)
def test_bad_accumulators_are_let_go_one_by_one(made: Callable[[], Aggregate[Any, Any, Any]]) -> None:
    driver, orders, out, dead = driver_of(
        lambda stream: stream.aggregate(made(), name="n", on_error=sf.DeadLetter("dead"))
    )
    driver.send_many(orders, [("a", order, 1_000) for order in ORDERS])
    assert len(driver.output(dead)) == len(ORDERS)
    assert not driver.output(out)
    assert driver.state("n", key="a") is None


def test_an_inferred_type_reads_what_was_written_before_it_was_inferred() -> None:
    def app_of(add_one: Any) -> tuple[sf.App, Any, Any]:
        app = sf.App("orders")
        orders, out = app.topic("orders", key=str, value=Order), app.topic("out", value=sf.Json)
        stream = app.stream(orders, co_partitioned=True)
        stream.aggregate(sf.fold(lambda: {"orders": 0}, add_one), name="n").to(out)
        return app, orders, out

    app, orders, _ = app_of(lambda total, _: {"orders": total["orders"] + 1})
    driver = TestDriver(app, partitions=1)
    driver.send_many(orders, [("a", ORDERS[0], 1_000)])
    app, orders, out = app_of(add)
    driver.upgrade(app)
    driver.send_many(orders, [("a", ORDERS[0], 1_000)])
    assert driver.output(out)[-1].value == {"orders": 2}
