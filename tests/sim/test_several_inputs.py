"""Operators with several inputs: a handler for each, one state, and the event time of the slowest."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Order:
    number: str
    cents: int


@dataclass(frozen=True)
class Payment:
    order: str
    cents: int


class Balance(sf.Operator[str, object, int]):
    """What is owed for each order; after a minute it says so."""

    owed: sf.Value[int] = sf.state(default=0)

    def on_order(self, order: Order | None, ctx: sf.Context[int]) -> None:
        if order is None:
            self.owed.clear()
            return
        self.owed.set(self.owed.get() + order.cents)
        ctx.timer("look", after=timedelta(minutes=1))

    def on_payment(self, payment: Payment, ctx: sf.Context[int]) -> None:
        self.owed.set(self.owed.get() - payment.cents)
        ctx.timer("look", after=timedelta(minutes=1))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:
        ctx.emit(self.owed.get())


@dataclass(frozen=True)
class Shop:
    app: sf.App
    orders: sf.Topic[str, Order]
    payments: sf.Topic[str, Payment]
    owed: sf.Topic[str, int]


def topics(app: sf.App) -> Shop:
    return Shop(
        app,
        app.topic("orders", key=str, value=Order),
        app.topic("payments", key=str, value=Payment),
        app.topic("owed", key=str, value=int),
    )


def by_process() -> Shop:
    """Orders under the keys they have, payments re-keyed."""
    shop = topics(sf.App("shop"))
    orders = shop.app.stream(shop.orders)
    payments = shop.app.stream(shop.payments).key_by("order", name="by-order", key=str)
    shop.app.process(
        Balance, sf.port(orders, Balance.on_order), sf.port(payments, Balance.on_payment), name="balance"
    ).to(shop.owed)
    return shop


def by_decorator() -> Shop:
    """Both in the partitions that their producers chose."""
    shop = topics(sf.App("shop"))
    orders = shop.app.stream(shop.orders, co_partitioned=True)
    payments = shop.app.stream(shop.payments, co_partitioned=True)
    shop.app.operator("balance", inputs={"on_order": orders, "on_payment": payments}, sink=shop.owed)(Balance)
    return shop


SHOPS = pytest.mark.parametrize("made", [by_process, by_decorator])


@SHOPS
def test_each_input_has_its_handler_and_all_share_the_state(made: object) -> None:
    shop = made()  # type: ignore[operator]
    driver = TestDriver(shop.app, partitions=3)
    for number in range(5):
        driver.send(shop.orders, Order(f"o{number}", 100 + number), key=f"o{number}", timestamp_ms=T0)
        driver.send(shop.payments, Payment(f"o{number}", 100), key=f"o{number}", timestamp_ms=T0 + 1_000)
    assert [driver.state("balance", "owed", key=f"o{number}") for number in range(5)] == list(range(5))
    driver.send(shop.orders, None, key="o4", timestamp_ms=T0 + 2_000)
    assert driver.state("balance", "owed", key="o4") is None, "a tombstone reaches the handler of its input"


@SHOPS
def test_event_time_is_the_least_of_the_inputs(made: object) -> None:
    shop = made()  # type: ignore[operator]
    driver = TestDriver(shop.app, partitions=1)
    driver.send(shop.payments, Payment("o", 0), key="o", timestamp_ms=T0)
    driver.send(shop.orders, Order("o", 7), key="o", timestamp_ms=T0)
    driver.send(shop.orders, Order("p", 7), key="p", timestamp_ms=T0 + 9 * MINUTE_MS)
    assert driver.output(shop.owed) == [], "payments stand at the first minute"
    driver.send(shop.payments, Payment("o", 2), key="o", timestamp_ms=T0 + MINUTE_MS // 2)
    driver.advance(seconds=60)  # both fall idle
    told = {record.key: (record.value, record.timestamp_ms - T0) for record in driver.output(shop.owed)}
    assert told == {"o": (5, MINUTE_MS * 3 // 2)}


def test_crashes_and_repartitions_lose_nothing() -> None:
    shop, rng = by_process(), random.Random(7)
    driver = TestDriver(shop.app, partitions=2, poll_records=3)
    expected: dict[str, int] = {}
    for step in range(60):
        key, cents = f"o{rng.randrange(6)}", rng.randrange(1, 50)
        if rng.random() < 0.5:
            driver.send(shop.orders, Order(key, cents), key=key, timestamp_ms=T0 + step)
            expected[key] = expected.get(key, 0) + cents
        else:
            driver.send(shop.payments, Payment(key, cents), key="any", timestamp_ms=T0 + step)
            expected[key] = expected.get(key, 0) - cents
        if step % 13 == 5:
            driver.crash(disk_lost=step % 2 == 0)
            driver.restore()
        if step in (20, 40):
            driver.repartition(step // 10 + 1)
    driver.end_input()
    assert {key: driver.state("balance", "owed", key=key) for key in expected} == expected
    assert {record.key: record.value for record in driver.output(shop.owed)} == expected


class Last(sf.Operator[str, int, str]):
    """What came last from the other input, said with each record."""

    evens: sf.Value[int] = sf.state(default=0)

    def on_even(self, value: int, ctx: sf.Context[str]) -> None:
        self.evens.set(value)

    def on_odd(self, value: int, ctx: sf.Context[str]) -> None:
        ctx.emit(f"{value} after {self.evens.get()}")


@pytest.mark.parametrize("together", [True, False])
def test_the_arms_of_a_branch_meet_in_the_order_of_the_log(together: bool) -> None:
    app = sf.App("x")
    numbers, out = app.topic("numbers", key=str, value=int), app.topic("out", key=str, value=str)
    evens, odds = app.stream(numbers, co_partitioned=True).branch(lambda value: value % 2 == 0)
    app.process(Last, sf.port(evens, Last.on_even), sf.port(odds, Last.on_odd), name="last").to(out)
    (stage,) = app.topology().stages
    assert stage.shared_inputs == {"numbers"}
    driver = TestDriver(app, partitions=1)
    rows = [("k", value, T0 + value) for value in range(1, 8)]
    for some in [rows] if together else [[row] for row in rows]:
        driver.send_many(numbers, some)
    assert [record.value for record in driver.output(out)] == [
        "1 after 0",
        "3 after 2",
        "5 after 4",
        "7 after 6",
    ]


def test_what_does_not_fit_is_refused() -> None:
    shop = topics(sf.App("shop"))
    orders = shop.app.stream(shop.orders)
    by_cents = shop.app.stream(shop.payments).key_by("cents", name="by-cents", key=int)
    with pytest.raises(GraphError, match="written differently"):
        shop.app.operator("a", inputs={"on_order": orders, "on_payment": by_cents})(Balance)
    with pytest.raises(GraphError, match="has no on_refund"):
        shop.app.operator("b", inputs={"on_refund": orders})(Balance)
    with pytest.raises(GraphError, match="no inputs"):
        shop.app.process(Balance, name="c")
    with pytest.raises(GraphError, match="same handler"):
        shop.app.process(
            Balance, sf.port(orders, Balance.on_order), sf.port(orders, Balance.on_order), name="d"
        )
    with pytest.raises(GraphError, match="both a source and inputs"):
        shop.app.operator("e", source=orders, inputs={"on_order": orders})
    with pytest.raises(GraphError, match="one key for them"):
        shop.app.operator("f", inputs={"on_order": orders}, key="cents")
