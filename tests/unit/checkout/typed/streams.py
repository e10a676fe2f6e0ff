"""Types of the verbs without windows: steps of their own, and aggregates."""

from __future__ import annotations

SCRIPT = """
from dataclasses import dataclass

import stateflow as sf

@dataclass
class Sale:
    shop: str
    cents: int

app = sf.App("x")
sales = app.stream(app.topic("sales", key=str, value=Sale)).key_by("shop", name="by-shop", key=str)
cents = sales.map(lambda sale: sale.cents)
reveal_type(cents)
reveal_type(sales.map_pairs(lambda key, sale: len(key) / sale.cents))
reveal_type(sales.flat_map(lambda sale: [sale.shop, "and"]))
reveal_type(sales.filter(lambda sale: sale.cents > 0))
reveal_type(sales.peek(print))
reveal_type(sales.branch(lambda sale: sale.cents > 0, lambda sale: True))
reveal_type(sales.merge(sales.filter(lambda sale: sale.cents > 9)))
reveal_type(sales.count(name="a1"))
reveal_type(cents.min(name="a2"))
reveal_type(sales.max(lambda sale: sale.shop, name="a3"))
reveal_type(sales.max("shop", name="a4"))
reveal_type(cents.mean(name="a5"))
reveal_type(cents.reduce(max, name="a6"))
reveal_type(cents.aggregate(sf.count(), name="b1"))
reveal_type(cents.aggregate(sf.fold(0.0, lambda one, two: one + two), name="b2"))
reveal_type(cents.aggregate(sf.fold(0.0, lambda one, two: one + two, result=str), name="b3"))
reveal_type(sales.aggregate(sf.first("shop", type=str), name="b4"))
reveal_type(sales.aggregate(sf.collect("shop", limit=5, type=str), name="b5"))
reveal_type(cents.aggregate(sf.min(type=int), name="b6"))
reveal_type(cents.aggregate(sf.histogram(), name="b7"))
reveal_type(cents.aggregate(sf.quantile(0.5), name="b8"))
reveal_type(sales.aggregate(orders=sf.count(), cents=sf.sum("cents"), name="b9"))

sales.map(lambda sale: sale.euros)  # no such field
sales.map_pairs(lambda sale: sale.cents)  # a function of both
sales.flat_map(lambda sale: sale.cents)  # no list
sales.merge(cents)  # another type of value
cents.reduce(lambda one, two: str(one), name="k1")  # no whole number
cents.min()  # without a name
sales.max(lambda sale: sale.euros, name="k2")  # no such field
sales.aggregate(sf.collect("shop"), name="k3")  # without a limit
sales.aggregate(5, name="k4")  # no aggregate
"""
STREAM = "stateflow.operators.dsl.stream.Stream"
REVEALED = (
    f"{STREAM}[str, int]",
    f"{STREAM}[str, float]",
    f"{STREAM}[str, str]",
    f"{STREAM}[str, streams.Sale]",
    f"{STREAM}[str, streams.Sale]",
    f"tuple[{STREAM}[str, streams.Sale], ...]",
    f"{STREAM}[str, streams.Sale]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, str]",
    f"{STREAM}[str, Any]",
    f"{STREAM}[str, float | None]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, float]",
    f"{STREAM}[str, str]",
    f"{STREAM}[str, str | None]",
    f"{STREAM}[str, list[str]]",
    f"{STREAM}[str, int | None]",
    f"{STREAM}[str, dict[int, int]]",
    f"{STREAM}[str, float | None]",
    f"{STREAM}[str, dict[str, Any]]",
)
MISUSES = 9
