"""A type checker infers what the verbs of records give, and refuses topics of other values and keys of other types."""

from __future__ import annotations

SCRIPT = """
from dataclasses import dataclass

import stateflow as sf

@dataclass
class Order:
    shop: str
    cents: int

class Typed(sf.Operator[int, Order, str]):
    def on_record(self, value: Order, ctx: sf.Context[str, int]) -> None:
        reveal_type(ctx.key)
        reveal_type(ctx.header("a"))
        reveal_type(ctx.headers)
        ctx.emit("x", headers={"a": b"b", "c": "d"})

class Open(sf.Operator[int, Order, str]):
    def on_record(self, value: Order, ctx: sf.Context[str]) -> None:
        reveal_type(ctx.key)

def size(record: sf.StreamRecord[str, Order]) -> int:
    return len(record.headers) + record.value.cents + len(record.key)

by_text: sf.Context[str, str]
app = sf.App("x")
source = app.topic("orders", key=str, value=Order)
orders = app.stream(source)
texts, numbers = app.topic("t", key=str, value=str), app.topic("n", key=str, value=int)
floats, anything = app.topic("f", key=str, value=float), app.topic("a", value=sf.Json)
keyed = orders.key_by_pairs(lambda key, order: order.cents + len(key), name="k", key=int)
cents = keyed.map(lambda order: order.cents)
reveal_type(orders.filter_pairs(lambda key, order: key == order.shop))
reveal_type(orders.flat_map_pairs(lambda key, order: [len(key), order.cents]))
reveal_type(orders.map_records(size))
reveal_type(orders.map_headers(lambda headers, order: [*headers, ("shop", order.shop)]))
reveal_type(keyed)
reveal_type(keyed.process(Typed, name="p"))
reveal_type(cents.sum(name="s1"))
reveal_type(keyed.sum(lambda order: order.cents / 2, name="s2"))
reveal_type(keyed.sum("cents", name="s3"))
orders.to(source)
cents.to(numbers)
cents.to(floats)
cents.to(anything)
cents.mean(name="m").to(floats)
cents.to(lambda value: numbers if value else floats, among=(numbers, floats))

orders.filter_pairs(lambda key, order: key == order.shops)  # no such field
orders.map_records(lambda record: record.values)  # no such field
orders.map_headers(lambda headers, order: order)  # no headers
orders.key_by_pairs(lambda key, order: order.euros, name="k2")  # no such field
orders.key_by_pairs("shop", name="k3")  # not a function of both
cents.to(texts)  # another type of value
cents.to(lambda value: numbers, among=(texts, numbers))  # another type of value, in one of them
cents.to(lambda value: numbers)  # among which?
cents.mean(name="m2").to(numbers)  # no whole numbers
Typed().on_record(Order("a", 1), by_text)  # another type of key
"""
STREAM = "stateflow.operators.dsl.stream.Stream"
REVEALED = (
    "int",
    "bytes | None",
    "tuple[tuple[str, bytes], ...]",
    "Any",
    f"{STREAM}[str, records.Order]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, records.Order]",
    f"{STREAM}[int, records.Order]",
    f"{STREAM}[int, str]",
    f"{STREAM}[int, int]",
    f"{STREAM}[int, float]",
    f"{STREAM}[int, Any]",
)
MISUSES = 10
