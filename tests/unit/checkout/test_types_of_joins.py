"""A type checker infers keys and values through operators of several inputs, tables and joins, and refuses misuse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
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

def bill(order: Order, name: str) -> tuple[str, int]:
    return name, order.cents

def either(order: Order | None, name: str | None) -> bytes:
    return b""

app = sf.App("x")
orders = app.stream(app.topic("orders", key=str, value=Order))
names_topic = app.topic("names", key=str, value=str)
names = app.stream(names_topic)
table = app.table(names_topic, name="names")
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

by_cents = names.key_by(len, name="by-length")
sf.port(names, Match.on_order)  # a handler of other values
app.process(Match, sf.port(by_cents, Match.on_name), name="n")  # another type of key
orders.join(table, lambda order, name: order.customers, name="k1")  # no such field
orders.left_join(table, bill, name="k2")  # a function that does not take None
orders.join(by_cents, bill, name="k3", within=near)  # another type of key
orders.join(names, bill, name="k4")  # no interval
kept.join(names, bill, name="k5")  # a table joins tables
"""
STREAM, TABLE = "stateflow.operators.stream.Stream", "stateflow.operators.table.Table"
REVEALED = (
    f"{STREAM}[str, float]",
    f"{TABLE}[str, str]",
    f"{STREAM}[str, tuple[str | None, str | None, fallback=stateflow.codec.change.Change[str]]]",
    f"{STREAM}[str, int]",
    "stateflow.operators.table.GroupedTable[int, script.Order]",
    f"{TABLE}[str, int]",
    f"{TABLE}[str, int]",
    f"{STREAM}[str, tuple[str, int]]",
    f"{STREAM}[str, bytes]",
    f"{STREAM}[str, tuple[str, int]]",
    f"{STREAM}[str, bytes]",
    f"{TABLE}[str, tuple[str, int]]",
    f"{TABLE}[str, bytes]",
)
MISUSES = 7

pytestmark = pytest.mark.slow


def test_types_are_inferred_and_misuse_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--output=json"]
    command += ["--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), "script.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    told = [row for row in told if row["file"] == "script.py"]
    assert told, done.stderr
    shown = [row["message"] for row in told if row["message"].startswith("Revealed type")]
    assert [message.partition('"')[2].rstrip('"') for message in shown] == list(REVEALED)
    first_misuse = SCRIPT[: SCRIPT.index("sf.port(names, Match.on_order)  #")].count("\n") + 1
    wrong = {row["line"] for row in told if row["severity"] == "error"}
    assert wrong == set(range(first_misuse, first_misuse + MISUSES)), done.stdout
