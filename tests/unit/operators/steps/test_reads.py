"""Records read in part: the same results and the same dead letters as where each is read whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.codec.projected import ProjectedRow
from stateflow.errors import DecodeError, ProcessingError
from stateflow.operators.steps.reads import Reader, Reads
from stateflow.record import Record
from stateflow.testing import TestDriver

Build = Callable[[Any, sf.App], object]
DEAD = sf.DeadLetter("dead")
MINUTE = sf.Tumbling(timedelta(minutes=1))

ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "cents": st.none() | st.integers(-3, 90),
        "shop": st.sampled_from(["a", "b", "ä"]),
        "note": st.text(max_size=4) | st.lists(st.integers(), max_size=2),
        "customer": st.none() | st.fixed_dictionaries({"city": st.sampled_from(["Rome", "Bern"])}),
    },
).map(lambda order: json.dumps(order, ensure_ascii=False).encode())
BAD = [
    b"",
    b"null",
    b"[1]",
    b"{",
    b'{"cents": 1} {}',
    b'{"note": "\xff", "cents": 5, "shop": "a"}',
    b'{"cents": "x"}',
]
RECORDS = st.lists(ORDERS | ORDERS | ORDERS | st.sampled_from(BAD), max_size=12)


def by_columns(orders: Any, app: sf.App) -> None:
    cents = sf.col("cents")
    paid, other = orders.filter((cents > 0) & sf.col("shop").is_not_null(), on_error=DEAD).branch(
        sf.col("customer", "city") == "Rome", on_error=DEAD
    )
    keyed = paid.key_by("shop", name="by-shop", on_error=DEAD)
    sums = keyed.aggregate(
        name="sums", n=sf.count(), cents=sf.sum("cents"), most=sf.max(cents), on_error=DEAD
    )
    sums.to(app.topic("sums", key=str, value=sf.Json))
    keyed.window(MINUTE).sum(cents % 7, name="odd", on_error=DEAD).to(
        app.topic("odd", key=str, value=sf.Json)
    )
    other.to(app.topic("others", value=sf.Json), on_error=DEAD)
    orders.select(shop="shop", twice=cents * 2, on_error=DEAD).to(
        app.topic("selected", value=sf.Json), on_error=DEAD
    )


def field(order: Any, name: str) -> Any:
    if not isinstance(order, dict):
        raise TypeError(name)
    return order.get(name)


def positive(order: Any) -> bool:
    cents = field(order, "cents")
    return cents is not None and cents > 0 and field(order, "shop") is not None


def odd(order: Any) -> Any:
    return None if order["cents"] is None else order["cents"] % 7


def twice(order: Any) -> dict[str, Any]:
    cents = field(order, "cents")
    return {"shop": field(order, "shop"), "twice": None if cents is None else cents * 2}


def by_functions(orders: Any, app: sf.App) -> None:
    paid, other = orders.filter(positive, on_error=DEAD).branch(
        lambda order: (order.get("customer") or {}).get("city") == "Rome", on_error=DEAD
    )
    keyed = paid.key_by(lambda order: order["shop"], name="by-shop", on_error=DEAD)
    sums = keyed.aggregate(
        name="sums",
        n=sf.count(),
        cents=sf.sum(lambda order: order["cents"]),
        most=sf.max(lambda order: order["cents"]),
        on_error=DEAD,
    )
    sums.to(app.topic("sums", key=str, value=sf.Json))
    keyed.window(MINUTE).sum(odd, name="odd", on_error=DEAD).to(app.topic("odd", key=str, value=sf.Json))
    other.to(app.topic("others", value=sf.Json), on_error=DEAD)
    orders.map(twice, on_error=DEAD).to(app.topic("selected", value=sf.Json), on_error=DEAD)


def outputs(
    build: Build, batches: Sequence[Sequence[bytes]], declared: Any = sf.Json
) -> dict[str, list[Any]]:
    """What an application writes for these records of its input, by topic; dead letters without their reasons."""
    app = sf.App("shop")
    build(app.stream(app.topic("orders", value=declared), on_error=DEAD), app)
    driver = TestDriver(app, partitions=1)
    for records in batches:
        writer = driver.cluster.writer()
        for data in records:
            writer.send("orders", None, data, partition=0, timestamp_ms=driver.clock.now_ms())
        writer.commit()
        writer.close()
        driver.run()
    found: dict[str, list[Any]] = {"dead": [record.value for record in driver._read("dead")]}
    for name in ("sums", "odd", "others", "selected"):
        found[name] = [_shown(record) for record in driver._read(name)]
    return found


def _shown(record: Record) -> tuple[bytes | None, Any, int]:
    return record.key, json.loads(record.value), record.timestamp_ms


@settings(max_examples=60, deadline=None)
@given(st.lists(RECORDS, max_size=3), st.sampled_from([sf.Json, dict]))
def test_columns_and_functions_give_the_same(batches: list[list[bytes]], declared: Any) -> None:
    assert outputs(by_columns, batches, declared) == outputs(by_functions, batches, declared)


def vars_of(row: ProjectedRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__ if name != "as_bytes_"}


def test_only_the_fields_that_are_read_become_objects_and_bytes_travel_as_they_came() -> None:
    reader = Reader(sf.Json, lambda: Reads(frozenset({"cents"}), as_bytes=True))
    data = b'{"note": [1, 2],  "cents": 3}'
    (row,) = reader.decode_many([data])
    assert isinstance(row, ProjectedRow)
    assert vars_of(row) == {"cents": 3}
    assert row.as_bytes_ is data


def test_a_declared_dict_is_read_in_part_and_anything_else_refused_as_ever() -> None:
    app = sf.App("shop")
    reader = Reader(app.topic("orders", value=dict).value, lambda: Reads(frozenset({"cents"})))
    assert isinstance(reader.decode_many([b'{"cents": 3}'])[0], ProjectedRow)
    with pytest.raises(DecodeError, match="Expected `object`"):
        reader.decode_many([b"[1]"])


@pytest.mark.parametrize("odd", [b"[1]", None, b'{"as_bytes_": 1}'])
def test_a_batch_with_what_is_no_map_is_read_whole(odd: bytes | None) -> None:
    reader = Reader(sf.Json, lambda: Reads(frozenset({"cents"})))
    whole = sf.Json.decode_many([b'{"cents": 3}', odd])
    assert reader.decode_many([b'{"cents": 3}', odd]) == whole


def test_what_is_passed_over_has_to_be_text_all_the_same() -> None:
    reader = Reader(sf.Json, lambda: Reads(frozenset({"cents"})))
    with pytest.raises(DecodeError) as raised:
        reader.decode_many([b'{"cents": 1}', b'{"cents": 1, "note": "\xff"}'])
    assert raised.value.fields["row"] == 1


@pytest.mark.parametrize(
    ("codec", "reads"),
    [
        (sf.Json, None),
        (sf.Json, Reads(frozenset({"not an identifier"}))),
        (sf.Json, Reads(frozenset({"class"}))),
        (sf.JsonOf(dict[str, int]), Reads(frozenset({"cents"}))),
    ],
)
def test_what_is_read_whole(codec: sf.Codec[Any], reads: Reads | None) -> None:
    assert Reader(codec, lambda: reads).decode_many([b'{"cents": 3}']) == [{"cents": 3}]


def test_a_field_that_a_record_does_not_have_follows_the_policy_of_a_step_that_was_given_its_name() -> None:
    app = sf.App("shop")
    orders = app.topic("orders", value=sf.Json)
    app.stream(orders).key_by("shop", name="by-shop").sum("cents", name="cents")
    driver = TestDriver(app)
    driver.send(orders, {"shop": "a", "cents": 1})
    assert driver.state("cents", key="a") == 1
    with pytest.raises(ProcessingError, match="KeyError: 'shop'"):
        driver.send(orders, {"cents": 1})


def test_columns_stand_wherever_a_function_of_the_value_may() -> None:
    app = sf.App("shop")
    orders = app.topic("orders", key=str, value=sf.Json, timestamp=sf.col("at"))
    stream = app.stream(orders, co_partitioned=True)
    seen = app.topic("seen", key=str, value=sf.Json)
    stream.dedup(name="once", within=timedelta(hours=1), by=sf.col("id").cast(str)).map(sf.col("id")).to(seen)
    stream.top(2, name="best", by=sf.col("cents") * 1.0, item=sf.col("id"))
    by_number = stream.key_by(sf.col("id").cast(int) % 3, name="by-id", key=int)
    by_number.aggregate(
        name="several",
        most=sf.top_k(1, by=sf.col("cents"), item=sf.col("id")),
        tally=sf.histogram(sf.col("cents")),
        mean=sf.mean(sf.col("cents") + 1),
        first=sf.first(sf.col("id")),
        all=sf.collect(sf.col("id"), limit=5),
    )
    inferred = stream.key_by(sf.col("id").cast(int), name="by-number").count(name="n")
    assert inferred is not None
    driver = TestDriver(app)
    rows = [("a", {"id": "3", "cents": 4, "at": 1000}), ("a", {"id": "3", "cents": 6, "at": 2000})]
    driver.send_many(orders, [(key, value, 0) for key, value in rows])
    assert [(row.value, row.timestamp_ms) for row in driver.rows(seen)] == [("3", 1000)]
    assert driver.state("several", key=0) == {
        "most": [[6, "3"]],
        "tally": {4: 1, 6: 1},
        "mean": [2, 12],
        "first": "3",
        "all": ["3", "3"],
    }
    assert driver.state("n", key=3) == 2
