"""A type checker infers what calls of services give, and refuses functions of other values."""

from __future__ import annotations

SCRIPT = """
from dataclasses import dataclass
from datetime import timedelta

import stateflow as sf

@dataclass
class Order:
    shop: str
    cents: int

async def asked(order: Order) -> float:
    return order.cents / 2

def blocking(order: Order) -> int:
    return order.cents

async def name_of(shop: str) -> bytes:
    return shop.encode()

def size_of(shop: str) -> int:
    return len(shop)

def named(order: Order, name: bytes) -> tuple[Order, bytes]:
    return order, name

app = sf.App("x")
orders = app.stream(app.topic("orders", key=str, value=Order))
texts = app.topic("t", key=str, value=str)
reveal_type(orders.map_async(asked))
reveal_type(orders.map_async(blocking, concurrency=3, timeout=timedelta(seconds=1), ordered=False))
reveal_type(orders.map_async(name_of, of=lambda order: order.shop, into=named))
reveal_type(orders.map_async(name_of, of="shop", into=lambda order, name: len(name) + order.cents))
reveal_type(orders.map_async(size_of, of="shop", into=lambda order, size: size + order.cents))
orders.map_async(asked, cache=sf.Cache(9, timedelta(hours=1)), retries=3, on_error=sf.DeadLetter("dead"))

orders.map_async(name_of)  # a function of something else
orders.map_async(size_of)  # a function of something else
orders.map_async(name_of, of=lambda order: order.cents, into=named)  # asks for something else
orders.map_async(size_of, of="shop", into=named)  # another type of answer
orders.map_async(asked).to(texts)  # another type of value
orders.map_async(asked, timeout=5)  # no duration
orders.map_async(name_of, of="shop")  # into what?
"""
STREAM = "stateflow.operators.dsl.stream.Stream"
REVEALED = (
    f"{STREAM}[str, float]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, tuple[calls.Order, bytes]]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, int]",
)
MISUSES = 7
