"""Joins of tables by a foreign key: answers that overtake each other, moves between keys, refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import stateflow as sf
from stateflow.codec.compatible import obstacles
from stateflow.codec.details import detail_obstacles, details_of
from stateflow.codec.scalar import String
from stateflow.codec.structured import MsgPackOf
from stateflow.errors import GraphError
from stateflow.operators.joins.foreign_join import ForeignRules, Kept, Reply, newest_node
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000


def pair(left: str, right: str | None) -> str:
    return f"{left} {right}"


def first(value: str) -> str | None:
    return value[0] if value[:1] in ("a", "b") else None


def site(verb: str, partitions: int = 3) -> tuple[TestDriver, Any, Any, Any]:
    app = sf.App("x")
    left, right = app.topic("left", key=str, value=str), app.topic("right", key=str, value=str)
    out = app.topic("out", key=str, value=str)
    tables = app.table(left, name="lefts"), app.table(right, name="rights")
    join = getattr(tables[0], verb)
    join(tables[1], first, pair, name="joined").to(out)
    return TestDriver(app, partitions=partitions), left, right, out


def newest(driver: TestDriver, out: Any) -> dict[str, Any]:
    return {row.key: row.value for row in driver.rows(out)}


@pytest.mark.parametrize("verb", ["foreign_join", "left_foreign_join"])
def test_a_row_moves_between_foreign_keys(verb: str) -> None:
    driver, left, right, out = site(verb)
    is_left = verb.startswith("left")
    driver.send(right, "R", key="a", timestamp_ms=T0)
    driver.send(left, "a1", key="k", timestamp_ms=T0)
    assert newest(driver, out) == {"k": "a1 R"}
    driver.send(left, "b1", key="k", timestamp_ms=T0)
    assert newest(driver, out) == {"k": "b1 None" if is_left else None}
    driver.send(right, "S", key="b", timestamp_ms=T0)
    assert newest(driver, out) == {"k": "b1 S"}
    driver.send(right, "T", key="a", timestamp_ms=T0)  # nobody names it any more
    assert newest(driver, out) == {"k": "b1 S"}
    driver.send(left, "c1", key="k", timestamp_ms=T0)
    assert newest(driver, out) == {"k": "c1 None" if is_left else None}
    driver.send(left, None, key="k", timestamp_ms=T0)
    assert newest(driver, out)["k"] is None
    assert driver.state("joined", key="k") is None


def test_the_answer_to_an_older_change_is_dropped() -> None:
    """As two tasks may send them: the one that the row named before is slow."""
    app = sf.App("y")
    replies = app.topic("replies", key=str, value=MsgPackOf(Reply))
    out = app.topic("out", key=str, value=str)
    rules = ForeignRules("join", first, pair, True, String, String, String, String)
    keyed = app.stream(replies, co_partitioned=True)
    sf.Stream[str, str](keyed._graph, newest_node(keyed._graph, keyed.node, rules)).to(out)
    driver = TestDriver(app, partitions=1)
    for number, value in ((1, b"one"), (3, b"three"), (2, b"two"), (3, b"again"), (2, None), (4, None)):
        driver.send(replies, Reply(b"k", number, value), key="k", timestamp_ms=T0)
    assert [row.value for row in driver.rows(out)] == ["one", "three", "again", None]


def test_a_table_of_its_producers_partitions_is_refused() -> None:
    app = sf.App("z")
    left, right = app.topic("left", key=str, value=str), app.topic("right", key=str, value=str)
    table = app.table(right, name="rights", co_partitioned=True)
    with pytest.raises(GraphError, match="co_partitioned"):
        app.table(left, name="lefts").foreign_join(table, first, pair, name="joined")


def test_a_result_has_the_later_time_of_its_two_rows() -> None:
    app = sf.App("t")
    left, right = app.topic("left", key=str, value=str), app.topic("right", key=str, value=str)
    out = app.topic("out", key=str, value=str)
    table = app.table(right, name="rights")
    app.table(left, name="lefts").foreign_join(table, first, pair, name="joined").to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(right, "right", key="a", timestamp_ms=T0 + 500)
    driver.send(left, "a one", key="k", timestamp_ms=T0)
    driver.send(left, "a two", key="k", timestamp_ms=T0 + 900)
    assert [row.timestamp_ms - T0 for row in driver.rows(out)] == [500, 900]


def test_a_result_has_the_later_time_whichever_row_comes_first() -> None:
    driver, left, right, out = site("left_foreign_join", partitions=1)
    driver.send(left, "a one", key="k", timestamp_ms=T0 + 1_000)
    for at_ms, value in ((10, "R"), (2_000, "S"), (20, None)):
        driver.send(right, value, key="a", timestamp_ms=T0 + at_ms)
    assert [row.timestamp_ms - T0 for row in driver.rows(out)] == [1_000, 1_000, 2_000, 1_000]


def test_subscriptions_of_former_builds_are_read() -> None:
    """They had no time."""
    assert MsgPackOf(Kept).decode(b"\x92\x07\xc4\x01v") == Kept(7, b"v", -1)
    former = MsgPackOf(msgspec.defstruct("Kept", [("number", int), ("value", bytes)], array_like=True))
    assert obstacles(MsgPackOf(Kept).describe(), former.describe()) == []
    assert not list(detail_obstacles(details_of(MsgPackOf(Kept)), details_of(former)))


@pytest.mark.parametrize("on_error", [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(2, then=sf.Skip())])
def test_a_pair_that_fails_keeps_its_result_and_no_other(on_error: Any) -> None:
    app = sf.App("f")
    left, right = app.topic("left", key=str, value=sf.Json), app.topic("right", key=str, value=int)
    out, dead = app.topic("out", key=str, value=sf.Json), app.topic("dead", key=str, value=bytes)

    def ratio(row: list[Any], divisor: int) -> list[Any]:
        return [divisor, 100 // (row[1] - divisor)]

    rights = app.table(right, name="rights")
    joined = app.table(left, name="lefts").foreign_join(
        rights, lambda row: row[0], ratio, name="joined", on_error=on_error
    )
    joined.to(out)
    driver = TestDriver(app, partitions=2)
    driver.send(left, ["f", 9], key="x")
    driver.send(left, ["f", 6], key="y")
    driver.send(right, 5, key="f")
    driver.send(right, 6, key="f")
    assert newest(driver, out) == {"x": [6, 33], "y": [5, 100]}
    if isinstance(on_error, sf.DeadLetter):
        assert [(row.key, row.value[-1]) for row in driver.rows(dead)] == [("f", 6)]
    driver.send(left, ["f", 6], key="x")  # fails, and is what the row says from now on
    assert newest(driver, out)["x"] == [6, 33]
    driver.send(right, 5, key="f")
    assert newest(driver, out) == {"x": [5, 100], "y": [5, 100]}


def test_a_row_that_names_no_key_for_an_error_is_corrected_by_the_next() -> None:
    app = sf.App("g")
    left, right = app.topic("left", key=str, value=sf.Json), app.topic("right", key=str, value=int)
    out = app.topic("out", key=str, value=sf.Json)
    table = app.table(left, name="lefts")

    def named(row: dict[str, str]) -> str:
        return row["of"]

    def both(row: dict[str, str], number: int) -> list[Any]:
        return [row["of"], number]

    joined = table.foreign_join(
        app.table(right, name="rights"), named, both, name="joined", on_error=sf.Skip()
    )
    joined.to(out)
    driver = TestDriver(app, partitions=2)
    for key, number in (("a", 1), ("b", 2)):
        driver.send(right, number, key=key)
    for row in ({"of": "a"}, {"off": "a"}, {"of": "b"}):
        driver.send(left, row, key="k")
    assert newest(driver, out) == {"k": ["b", 2]}
    driver.send(right, 3, key="a")
    assert newest(driver, out) == {"k": ["b", 2]}
