"""Joins of tables by a foreign key: answers that overtake each other, moves between keys, refusals."""

from __future__ import annotations

from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.scalar import String
from stateflow.codec.structured import MsgPackOf
from stateflow.errors import GraphError
from stateflow.operators.joins.foreign_join import ForeignRules, Reply, newest_node
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


def newest(driver: TestDriver, out: Any) -> dict[str, str | None]:
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
