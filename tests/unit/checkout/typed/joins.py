"""A type checker infers keys and values through inputs, tables, joins, order, patterns, graphs, and refuses misuse."""

from __future__ import annotations

SCRIPT = """
from dataclasses import dataclass
from datetime import timedelta

import stateflow as sf

@dataclass
class Order:
    customer: str
    cents: int

class Match(sf.Operator[str, object, float]):
    def on_order(self, order: Order, ctx: sf.Context[float]) -> None: ...
    def on_name(self, name: str, ctx: sf.Context[float]) -> None: ...

class Rename(sf.Operator[str, Order, float]):
    def on_record(self, order: Order, ctx: sf.Context[float]) -> None: ...

def bill(order: Order, name: str) -> tuple[str, int]:
    return name, order.cents

def either(order: Order | None, name: str | None) -> bytes:
    return b""

def either_of(left: str, right: str | None) -> int:
    return 0

def summed(match: sf.Match[Order]) -> float:
    return sum(order.cents for order in match.all("up")) / 2

low = sf.pattern(Order).begin("low", lambda order: order.cents < 100)
rising = low.then("up", given=lambda order, taken: order.cents > taken["low"].cents).one_or_more().within(timedelta(1))
app = sf.App("x")
orders = app.stream(app.topic("orders", key=str, value=Order))
names_topic = app.topic("names", key=str, value=str)
names = app.stream(names_topic)
table = app.table(names_topic, name="names")
by_customer = orders.key_by("customer", name="by-customer", key=str)
kept = orders.to_table(name="orders")
near = timedelta(seconds=1)
reveal_type(app.process(Match, sf.port(orders, Match.on_order), sf.port(names, Match.on_name), name="m"))
reveal_type(table)
reveal_type(table.changes())
reveal_type(table.filter(bool).map(len).to_stream())
reveal_type(kept.group_by(lambda order: order.cents, name="g"))
reveal_type(kept.group_by("customer", name="h", key=str).aggregate(
    initial=0, add=lambda total, order: total + order.cents, remove=lambda total, order: total - order.cents, name="a"
))
reveal_type(kept.group_by("customer", name="i", key=str).count(name="c"))
reveal_type(orders.join(table, bill, name="j1"))
reveal_type(orders.left_join(table, either, name="j2"))
reveal_type(orders.join(names, bill, name="j3", within=near))
reveal_type(orders.outer_join(names, either, name="j4", within=sf.Within(near, grace=near)))
reveal_type(kept.join(table, bill, name="j5"))
reveal_type(kept.outer_join(table, either, name="j6"))
reveal_type(kept.foreign_join(table, lambda order: order.customer, bill, name="j7"))
reveal_type(kept.left_foreign_join(table, lambda order: order.customer, either, name="j8"))
whole = app.global_table(names_topic, name="whole")
static = app.static_table({1: "one"}, name="static")
reveal_type(whole)
reveal_type(static)
reveal_type(orders.join(whole, bill, name="j9", by="customer"))
reveal_type(names.left_join(static, either_of, name="j10", by=len))
reveal_type(orders.in_order(name="o1", tie_break=lambda order: order.cents))
reveal_type(orders.dedup(name="o2", by="cents", within=near))
reveal_type(by_customer.process(Rename, name="o3", order="event-time"))
reveal_type(by_customer.process(Rename, name="o6", order="event-time", tie_break=lambda order: order.cents))
reveal_type(app.process(
    Match,
    sf.port(orders, Match.on_order, tie_break=lambda order: order.cents),
    sf.port(names, Match.on_name, tie_break=len),
    name="o7",
    order="event-time",
))
reveal_type(by_customer.suppress(sf.Every(near), name="o4"))
reveal_type(by_customer.top(3, name="o5", by=lambda order: order.cents, item="customer"))

reveal_type(by_customer.match(rising, summed, name="p1"))
reveal_type(by_customer.match(rising, lambda match: match["low"].cents, name="p2", after=sf.SkipTo("up", "last")))
reveal_type(rising)
calls = sf.graph(app, orders, ends=lambda order: (order.customer, "shop"), name="g1", within=near)
reveal_type(calls)
reveal_type(calls.degrees(name="g2"))
reveal_type(calls.components(name="g3"))
queries = app.stream(app.topic("queries", key=str, value=sf.HopQuery))
reveal_type(calls.neighbourhoods(queries, name="g4"))

by_cents = names.key_by(len, name="by-length")
sf.port(names, Match.on_order)  # a handler of other values
app.process(Match, sf.port(by_cents, Match.on_name), name="n")  # another type of key
orders.join(table, lambda order, name: order.customers, name="k1")  # no such field
orders.left_join(table, bill, name="k2")  # a function that does not take None
orders.join(by_cents, bill, name="k3", within=near)  # another type of key
orders.join(names, bill, name="k4")  # no interval
kept.join(names, bill, name="k5")  # a table joins tables
orders.in_order(name="k6", tie_break=lambda order: order.euros)  # no such field
orders.dedup(name="k7")  # no time to remember
by_customer.process(Rename, name="k8", order="time")  # no such order
kept.foreign_join(table, lambda order: order.cents, bill, name="k9")  # another type of key
low.then("b", lambda order: order.euros)  # no such field
low.then("b", given=lambda order, taken: order.cents > taken["low"])  # a record is no number
by_customer.match(low, summed, name="k10")  # nothing says how long a match may take
names.match(rising, summed, name="k11")  # a pattern of other values
by_customer.match(rising, bill, name="k12")  # a function of something else
by_customer.match(rising, summed, name="k13", after="last")  # no such strategy
sf.graph(app, orders, ends=lambda order: order.customer, name="k14")  # an edge has two ends
sf.graph(app, orders, ends=lambda order: (order.customer, order.cents), name="k15")  # vertices are text
calls.neighbourhoods(names, name="k16")  # no queries
orders.left_join(whole, bill, name="k17", by="customer")  # a function that does not take None
orders.join(static, bill, name="k18", by=lambda order: order.euros)  # no such field
orders.join(table, bill, name="k19", by="customer")  # one that is divided has one key
by_customer.suppress(near, name="k20")  # an interval says of which time it is
sf.port(orders, Match.on_order, tie_break=lambda order: order.euros)  # no such field
app.process(Match, sf.port(names, Match.on_name), name="k21", order="time")  # no such order
"""
STREAM, TABLE = "stateflow.operators.dsl.stream.Stream", "stateflow.operators.dsl.table.Table"
REVEALED = (
    f"{STREAM}[str, float]",
    f"{TABLE}[str, str]",
    f"{STREAM}[str, tuple[str | None, str | None, fallback=stateflow.codec.change.Change[str]]]",
    f"{STREAM}[str, int]",
    "stateflow.operators.dsl.table.GroupedTable[int, joins.Order]",
    f"{TABLE}[str, int]",
    f"{TABLE}[str, int]",
    f"{STREAM}[str, tuple[str, int]]",
    f"{STREAM}[str, bytes]",
    f"{STREAM}[str, tuple[str, int]]",
    f"{STREAM}[str, bytes]",
    f"{TABLE}[str, tuple[str, int]]",
    f"{TABLE}[str, bytes]",
    f"{TABLE}[str, tuple[str, int]]",
    f"{TABLE}[str, bytes]",
    "stateflow.operators.topics.lookup_tables.GlobalTable[str, str]",
    "stateflow.operators.topics.lookup_tables.StaticTable[int, str]",
    f"{STREAM}[str, tuple[str, int]]",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, joins.Order]",
    f"{STREAM}[str, joins.Order]",
    f"{STREAM}[str, float]",
    f"{STREAM}[str, float]",
    f"{STREAM}[str, float]",
    f"{STREAM}[str, joins.Order]",
    f"{STREAM}[str, list[list[Any]]]",
    f"{STREAM}[str, float]",
    f"{STREAM}[str, int]",
    "stateflow.operators.patterns.patterns.Pattern[joins.Order]",
    "stateflow.graphs.edge_graph.EdgeGraph",
    f"{STREAM}[str, int]",
    f"{STREAM}[str, str]",
    f"{STREAM}[str, dict[str, int]]",
)
MISUSES = 26
