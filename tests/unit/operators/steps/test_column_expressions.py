"""Column expressions: what DuckDB computes of the same, three-valued logic included; and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import GraphError


class Both(NamedTuple):
    """An expression, as a column and in SQL."""

    column: Any
    sql: str


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-5, 5),
            "b": st.none() | st.integers(-5, 5),
            "s": st.none() | st.sampled_from(["", "x", "Xy", "yx", "ä"]),
            "t": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=12,
)
SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda one, two: one + two,
    "-": lambda one, two: one - two,
    "*": lambda one, two: one * two,
}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda one, two: one == two,
    "<>": lambda one, two: one != two,
    "<": lambda one, two: one < two,
    "<=": lambda one, two: one <= two,
    ">": lambda one, two: one > two,
    ">=": lambda one, two: one >= two,
}
TYPES = {"a": "BIGINT", "b": "BIGINT", "s": "VARCHAR", "t": "BOOLEAN"}
DATABASE = duckdb.connect()
LETTERS = {"x", "y", "X"}


def _numbers() -> st.SearchStrategy[Both]:
    constants = st.integers(-5, 5).map(lambda number: Both(number, f"({number})"))
    leaves = st.sampled_from([Both(sf.col("a"), "a"), Both(sf.col("b"), "b")])

    def larger(inner: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
        return st.one_of(
            st.builds(
                lambda sign, one, two: Both(
                    SIGNS[sign](one.column, two.column), f"({one.sql} {sign} {two.sql})"
                ),
                st.sampled_from(sorted(SIGNS)),
                inner,
                inner | constants,
            ),
            st.builds(
                lambda one, two: Both(two.column - one.column, f"({two.sql} - {one.sql})"), inner, constants
            ),
            inner.map(lambda one: Both(-one.column, f"(-{one.sql})")),
            inner.map(lambda one: Both(abs(one.column), f"abs({one.sql})")),
            st.builds(
                lambda one, two: Both(one.column.fill_null(two.column), f"coalesce({one.sql}, {two.sql})"),
                inner,
                inner | constants,
            ),
        )

    length = Both(sf.col("s").length(), "length(s)")
    return st.recursive(leaves | st.just(length), larger, max_leaves=4)


def _truths() -> st.SearchStrategy[Both]:
    text = sf.col("s")
    numbers = _numbers()
    leaves = st.one_of(
        st.just(Both(sf.col("t"), "t")),
        st.builds(
            lambda sign, one, two: Both(
                COMPARED[sign](one.column, two.column), f"({one.sql} {sign} {two.sql})"
            ),
            st.sampled_from(sorted(COMPARED)),
            numbers,
            numbers,
        ),
        st.sampled_from(sorted(LETTERS)).flatmap(
            lambda part: st.sampled_from(
                [
                    Both(text.contains(part), f"contains(s, '{part}')"),
                    Both(text.starts_with(part), f"starts_with(s, '{part}')"),
                    Both(text.ends_with(part), f"ends_with(s, '{part}')"),
                    Both(text.lower() == part, f"(lower(s) = '{part}')"),
                    Both(text.upper() == part, f"(upper(s) = '{part}')"),
                ]
            )
        ),
        numbers.map(lambda one: Both(one.column.is_in([1, 2, 3]), f"({one.sql} IN (1, 2, 3))")),
        st.builds(
            lambda one, low: Both(
                one.column.between(low, low + 3), f"({one.sql} BETWEEN {low} AND {low + 3})"
            ),
            numbers,
            st.integers(-4, 4),
        ),
        numbers.map(lambda one: Both(one.column.is_null(), f"({one.sql} IS NULL)")),
        numbers.map(lambda one: Both(one.column.is_not_null(), f"({one.sql} IS NOT NULL)")),
    )

    def larger(inner: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
        return st.one_of(
            st.builds(
                lambda one, two: Both(one.column & two.column, f"({one.sql} AND {two.sql})"), inner, inner
            ),
            st.builds(
                lambda one, two: Both(one.column | two.column, f"({one.sql} OR {two.sql})"), inner, inner
            ),
            inner.map(lambda one: Both(~one.column, f"(NOT {one.sql})")),
        )

    return st.recursive(leaves, larger, max_leaves=5)


def _chosen() -> st.SearchStrategy[Both]:
    return st.builds(
        lambda if_, one, two: Both(
            sf.when(if_.column, one.column, otherwise=two.column),
            f"CASE WHEN {if_.sql} THEN {one.sql} ELSE {two.sql} END",
        ),
        _truths(),
        _numbers(),
        _numbers(),
    )


@settings(max_examples=300)
@given(ROWS, st.one_of(_numbers(), _truths(), _chosen()))
def test_a_column_is_what_duckdb_makes_of_it(rows: list[dict[str, Any]], both: Both) -> None:
    columns = [[row[name] for row in rows] for name in TYPES]
    unnested = ", ".join(f"unnest(?::{type_}[]) AS {name}" for name, type_ in TYPES.items())
    found = DATABASE.execute(f"SELECT {both.sql} FROM (SELECT {unnested})", columns).fetchall()
    wanted = [value for (value,) in found]
    assert both.column.of_many(rows) == wanted
    assert [both.column(row) for row in rows] == wanted


@dataclass
class Order:
    cents: int
    shop: str


def test_fields_of_dicts_and_objects_of_paths_and_of_both_together() -> None:
    cents, city = sf.col("cents"), sf.col("customer", "city")
    assert cents.of_many([{"cents": 3}, {}, Order(4, "x")]) == [3, None, 4]
    assert city.of_many([{"customer": {"city": "Rome"}}, {"customer": None}, {}]) == ["Rome", None, None]
    assert (cents / 2 + cents % 2 - cents // 2)(Order(7, "x")) == 3.5 + 1 - 3
    assert (100 - cents)(Order(7, "x")) == 93
    assert cents.fields | city.fields == {"cents", "customer"}
    assert sf.col("shop").strip()({"shop": " x "}) == "x"
    with pytest.raises(AttributeError, match="a str has no field 'cents'"):
        cents("no order")


def test_what_a_column_is_printed_as() -> None:
    shown = (sf.col("cents") > 0) & ~sf.col("customer", "name").lower().is_in(["x", "y"])
    assert repr(shown) == "((col('cents') > 0) & ~col('customer', 'name').lower().is_in('x', 'y'))"


def test_python_s_and_or_and_chains_are_refused_with_what_to_write_instead() -> None:
    cents = sf.col("cents")
    for wrong in (
        lambda: cents > 0 and cents < 5,
        lambda: 0 < cents < 5,
        lambda: not cents,
        lambda: cents in [1],
    ):
        with pytest.raises(GraphError, match="no true or false") as raised:
            wrong()
        assert "between()" in (raised.value.action or "")
    with pytest.raises(GraphError, match="no name of a field"):
        sf.col("")


def test_what_is_no_text_and_no_truth_raises() -> None:
    for wrong in (sf.col("a").contains("1"), sf.col("a") & sf.col("a"), sf.col("a").lower(), sf.col("a") / 0):
        with pytest.raises((TypeError, ZeroDivisionError)):
            wrong({"a": 1})


ROWS_THAT_FAIL = [{"s": 4, "n": 2}, {"s": 4, "n": 0}, {"s": None, "n": 0}, {"n": 1}]
S, N = sf.col("s"), sf.col("n")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (sf.when(N != 0, S / N, otherwise=0), [2.0, 0, 0, None]),
        (sf.when(N == 0, -1, otherwise=S / N), [2.0, -1, -1, None]),
        ((N != 0) & (S / N > 1), [True, False, False, None]),
        ((N == 0) | (S / N > 1), [True, True, True, None]),
        (N.fill_null(S / 0), [2, 0, 0, 1]),
    ],
)
def test_what_is_not_taken_is_not_computed(column: Any, expected: list[Any]) -> None:
    assert column.of_many(ROWS_THAT_FAIL) == expected
    assert [column(row) for row in ROWS_THAT_FAIL] == expected
    assert column.of_many([]) == []


def test_lists_and_dicts_are_among_values_or_not() -> None:
    rows = [{"a": each} for each in ([1], {"x": 1}, "text", 1, None)]
    assert sf.col("a").is_in([[1], "text"]).of_many(rows) == [True, False, True, False, None]
    assert sf.col("a").is_in(["text", 1.0, "text"]).of_many(rows) == [False, False, True, True, None]
    assert repr(sf.col("a").is_in(["b", [1], "b"])) == "col('a').is_in('b', [1])"


@pytest.mark.parametrize("name", ["__init__", "__slots__", "__class__", "__struct_fields__", "as_bytes_"])
def test_fields_are_named_as_records_name_them(name: str) -> None:
    app = sf.App("names")
    rows, out = app.topic("rows", key=str, value=sf.Json), app.topic("out", key=str, value=sf.Json)
    app.stream(rows).filter(sf.col(name) > 0).map(sf.col(name), value=sf.Json).to(out)
    driver = sf.testing.TestDriver(app, partitions=1)
    driver.send(rows, {name: 1}, {name: 0}, {"other": 1}, {name: 2}, key="k")
    assert [row.value for row in driver.rows(out)] == [1, 2]


def test_arms_of_a_branch_are_asked_in_their_order_and_no_further() -> None:
    by_function = [lambda row: row.get("kind") == "a", lambda row: row["n"] > 5]
    for conditions in ([sf.col("kind") == "a", sf.col("n") > 5], by_function):
        app = sf.App("arms")
        rows = app.topic("rows", key=str, value=sf.Json)
        arms = app.stream(rows).branch(*conditions, on_error=sf.Skip())
        topics = [app.topic(f"arm-{number}", key=str, value=sf.Json) for number in range(3)]
        for arm, topic in zip(arms, topics, strict=True):
            arm.to(topic)
        driver = sf.testing.TestDriver(app, partitions=1)
        sent = [("a", "text"), ("b", 7), ("b", "text"), ("b", 1), ("a", 9)]
        driver.send(rows, *({"kind": kind, "n": n} for kind, n in sent), key="k")
        found = [[row.value["n"] for row in driver.rows(topic)] for topic in topics]
        assert found == [["text", 9], [7], [1]]
