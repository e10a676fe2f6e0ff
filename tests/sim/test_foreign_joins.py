"""Joins of tables by a foreign key: answers that overtake each other, moves between keys, refusals."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.scalar import String
from stateflow.codec.structured import MsgPackOf
from stateflow.errors import GraphError, ProcessingError
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


def test_a_result_has_the_later_time_of_its_two_rows_or_that_of_the_right_row_that_changes() -> None:
    app = sf.App("t")
    left, right = app.topic("left", key=str, value=str), app.topic("right", key=str, value=str)
    out = app.topic("out", key=str, value=str)
    table = app.table(right, name="rights")
    app.table(left, name="lefts").foreign_join(table, first, pair, name="joined").to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(right, "right", key="a", timestamp_ms=T0 + 500)
    driver.send(left, "a one", key="k", timestamp_ms=T0)
    driver.send(left, "a two", key="k", timestamp_ms=T0 + 900)
    driver.send(right, "other", key="a", timestamp_ms=T0 + 600)
    assert [row.timestamp_ms - T0 for row in driver.rows(out)] == [500, 900, 600]


# --- functions that fail ------------------------------------------------------------------------------------

POLICIES = [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(2, then=sf.DeadLetter("dead"))]


def named(row: dict[str, Any]) -> str | None:
    """Fails for a row without "of"."""
    key: str | None = row["of"]
    return key


def ratio(row: dict[str, Any], divisor: int | None) -> list[int | None]:
    """Fails where both are equal, and for a row of 7 that has no partner."""
    return [divisor, 100 // (row["n"] - (7 if divisor is None else divisor))]


def ratios(verb: str, on_error: Any, partitions: int) -> tuple[TestDriver, Any, Any, Any]:
    app = sf.App("r")
    left, right = app.topic("left", key=str, value=sf.Json), app.topic("right", key=str, value=int)
    out = app.topic("out", key=str, value=sf.Json)
    join = getattr(app.table(left, name="lefts"), verb)
    join(app.table(right, name="rights"), named, ratio, name="joined", on_error=on_error).to(out)
    return TestDriver(app, partitions=partitions), left, right, out


@pytest.mark.parametrize("on_error", POLICIES)
def test_a_pair_that_fails_has_no_result_and_the_others_have_theirs(on_error: Any) -> None:
    driver, left, right, out = ratios("foreign_join", on_error, partitions=1)
    for key, number in (("x", 9), ("y", 6), ("z", 16)):
        driver.send(left, {"of": "f", "n": number}, key=key)
    driver.send(right, 5, key="f")
    assert newest(driver, out) == {"x": [5, 25], "y": [5, 100], "z": [5, 9]}
    driver.send(right, 6, key="f")
    assert newest(driver, out) == {"x": [6, 33], "y": None, "z": [6, 10]}
    driver.send(left, {"of": "f", "n": 6}, key="x")
    assert newest(driver, out)["x"] is None
    if on_error != sf.Skip():
        dead = driver.output(sf.App("r").topic("dead"))
        attempts = b"3" if isinstance(on_error, sf.Retry) else b"1"
        assert [(each.key, dict(each.headers)["sf-attempts"]) for each in dead] == [
            (b"f", attempts),
            (b"f", attempts),
        ]
    driver.send(right, 5, key="f")
    assert newest(driver, out) == {"x": [5, 100], "y": [5, 100], "z": [5, 9]}


@pytest.mark.parametrize("verb", ["foreign_join", "left_foreign_join"])
@pytest.mark.parametrize("seed", range(4))
def test_results_are_those_of_what_both_tables_hold_whatever_fails_between(verb: str, seed: int) -> None:
    """In whichever order the tables are read, rows that name no key for an error among them."""
    rng = random.Random(f"{verb}-{seed}")
    driver, left, right, out = ratios(verb, rng.choice(POLICIES), partitions=rng.randint(1, 3))
    rows: dict[str, dict[str, Any] | None] = {}
    divisors: dict[str, int | None] = {}
    for _ in range(80):
        if rng.random() < 0.6:
            key = rng.choice("wxyz")
            whom = {"of": rng.choice(("f", "g", None))} if rng.random() < 0.8 else {}
            rows[key] = None if rng.random() < 0.1 else {**whom, "n": rng.randint(5, 8)}
            driver.send(left, rows[key], key=key)
        else:
            foreign = rng.choice("fg")
            divisors[foreign] = rng.choice((None, 5, 6, 7, 8))
            driver.send(right, divisors[foreign], key=foreign)
        if rng.random() < 0.05:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
        expected = {}
        for key, row in rows.items():
            if row is None or "of" not in row:
                continue
            divisor = divisors.get(row["of"])
            fails = row["n"] == (7 if divisor is None else divisor)
            if not fails and (divisor is not None or verb == "left_foreign_join"):
                expected[key] = ratio(row, divisor)
        assert {key: row for key, row in newest(driver, out).items() if row is not None} == expected


def test_a_row_that_names_no_key_for_an_error_is_corrected_by_the_next() -> None:
    driver, left, right, out = ratios("foreign_join", sf.Skip(), partitions=2)
    for key, number in (("f", 1), ("g", 2)):
        driver.send(right, number, key=key)
    told = []
    for row in ({"of": "f", "n": 3}, {"n": 3}, {"of": "g", "n": 3}):
        driver.send(left, row, key="k")
        told.append(newest(driver, out)["k"])
    assert told == [[1, 50], None, [2, 100]]
    driver.send(right, 2, key="f")
    assert newest(driver, out) == {"k": [2, 100]}, "nobody names it any more"


def test_with_fail_a_pair_stops_the_task() -> None:
    driver, left, right, _ = ratios("foreign_join", sf.Fail(), partitions=1)
    driver.send(left, {"of": "f", "n": 9}, key="x")
    with pytest.raises(ProcessingError, match="ZeroDivisionError"):
        driver.send(right, 9, key="f")


# --- a table with itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [None, timedelta(hours=1)])
@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_joined_with_itself(seed: int, history: timedelta | None) -> None:
    rng = random.Random(seed)
    app = sf.App("h")
    people, out = app.topic("people", key=str, value=sf.Json), app.topic("out", key=str, value=sf.Json)
    table = app.table(people, name="people-table", history=history)

    def boss_of(row: list[Any]) -> str | None:
        return row[1] or None

    def names(row: list[Any], boss: list[Any] | None) -> list[Any]:
        return [row[0], None if boss is None else boss[0]]

    active = table.filter(lambda row: row[0] % 5 != 0)
    active.left_foreign_join(table, boss_of, names, name="joined").to(out)
    driver = TestDriver(app, partitions=rng.randint(1, 3))
    rows: dict[str, list[Any] | None] = {}
    for number in range(60):
        key = rng.choice("abcd")
        rows[key] = None if rng.random() < 0.2 else [number, rng.choice(("", *"abcd"))]
        driver.send(people, rows[key], key=key, timestamp_ms=T0 + number)
        if rng.random() < 0.1:
            driver.crash(disk_lost=rng.random() < 0.5)
            driver.restore()
    kept = {key: row for key, row in rows.items() if row is not None}
    expected = {key: names(row, kept.get(row[1])) for key, row in kept.items() if row[0] % 5 != 0}
    assert {key: row for key, row in newest(driver, out).items() if row is not None} == expected
