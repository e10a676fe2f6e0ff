"""Types of operator classes: every type of state, timers and rounds."""

from __future__ import annotations

SCRIPT = """
from dataclasses import dataclass
from datetime import timedelta

import stateflow as sf

@dataclass
class Sale:
    shop: str
    cents: int

class Kept(sf.Operator[str, Sale, str]):
    total: sf.Value[int] = sf.state(default=0)
    waiting: sf.ListOf[Sale] = sf.state()
    by_shop: sf.MapOf[str, int] = sf.state()
    seen: sf.SetOf[str] = sf.state()
    hits: sf.Counter = sf.state()
    largest: sf.Reducing[int] = sf.state(reduce=max)
    priced: sf.Versioned[float] = sf.state(history=timedelta(days=1))
    every = sf.Every(timedelta(seconds=1))

    def on_record(self, sale: Sale, ctx: sf.Context[str, str]) -> None:
        reveal_type(self.total.get())
        reveal_type(list(self.waiting))
        reveal_type(self.by_shop.get("a"))
        reveal_type(list(self.by_shop.items()))
        reveal_type("a" in self.seen)
        reveal_type(self.hits.get())
        reveal_type(self.largest.get())
        reveal_type(self.priced.get(at=ctx.timestamp_ms))
        reveal_type(ctx.timers()[0].name)
        ctx.timer("later", after=timedelta(seconds=1), payload={"a": 1})
        ctx.emit(sale.shop)

    def on_timer(self, name: str, ctx: sf.Context[str, str]) -> None:
        reveal_type(ctx.key)
        ctx.emit(name)

    def on_every(self, ctx: sf.Context[str, str]) -> None:
        self.total.set(0)

app = sf.App("x")
topic = app.topic("sales", key=str, value=Sale)
sales = app.stream(topic).key_by("shop", name="by-shop", key=str)
reveal_type(sales.process(Kept, name="c1"))
decorated = app.operator("c2", source=sales, sink=app.topic("out", key=str, value=str))(Kept)
reveal_type(decorated().total.get())

context: sf.Context[str, str]
kept = Kept()
kept.total.set("a")  # no number
kept.waiting.append(5)  # no sale
kept.by_shop.put(5, 5)  # no text
kept.seen.add(5)  # no text
kept.largest.add("a")  # no number
kept.priced.set("a")  # no number
context.emit(5)  # no text
context.timer("a", after=5)  # no duration
sales.map(lambda sale: sale.cents).process(Kept, name="k1")  # another type of value
"""
REVEALED = (
    "int",
    "list[operators.Sale]",
    "int | None",
    "list[tuple[str, int]]",
    "bool",
    "int",
    "int",
    "float | None",
    "str",
    "str",
    "stateflow.operators.dsl.stream.Stream[str, str]",
    "int",
)
MISUSES = 9
