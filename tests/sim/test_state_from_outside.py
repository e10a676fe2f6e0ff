"""What each type of state holds, of each type of key, element and value, read from outside in every way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import stateflow as sf
from stateflow.errors import ConfigError
from stateflow.query.local import TaskRow, as_fields
from stateflow.query.read import TableRequest, read_table
from stateflow.state.decoding import StoreDecoder
from stateflow.testing import TestDriver

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Point:
    x: int
    y: int = 7


class Pair(NamedTuple):
    name: str
    number: int


class Colour(Enum):
    RED = "red"


SAMPLES: dict[str, tuple[Any, Any]] = {
    "str": (str, "a"),
    "bytes": (bytes, b"\xff"),
    "int": (int, -3),
    "float": (float, 1.5),
    "bool": (bool, True),
    "optional": (int | None, 5),
    "union": (int | str, "q"),
    "any": (Any, 5),
    "datetime": (datetime, NOON),
    "date": (date, NOON.date()),
    "timedelta": (timedelta, timedelta(seconds=90)),
    "uuid": (UUID, UUID(int=7)),
    "enum": (Colour, Colour.RED),
    "decimal": (Decimal, Decimal("1.50")),
    "tuple": (tuple[str, int], ("a", 1)),
    "tuple of bytes": (tuple[bytes, datetime], (b"\xff", NOON)),
    "dataclass": (Point, Point(1)),
    "named tuple": (Pair, Pair("a", 1)),
}
VALUES: dict[str, tuple[Any, Any]] = {
    **SAMPLES,
    "list": (list[int], [1, 2]),
    "dict": (dict[str, Point], {"a": Point(1)}),
    "dict by bytes": (dict[bytes, int], {b"\xff": 1}),
    "dict by tuple": (dict[tuple[str, int], int], {("a", 1): 1}),
}


def _operator(states: dict[str, Any], change: Callable[[Any], None]) -> type[sf.Operator[Any, Any, Any]]:
    def on_record(self: Any, _value: object, _ctx: object) -> None:
        change(self)

    body: dict[str, Any] = {name: sf.state() for name in states}
    if "versioned" in states:
        body["versioned"] = sf.state(max_versions=3)
    return type("Held", (sf.Operator,), {"__annotations__": states, **body, "on_record": on_record})


def _driver(
    states: dict[str, Any], change: Callable[[Any], None], key: tuple[Any, Any]
) -> Iterator[TestDriver]:
    app = sf.App("held")
    topic = app.topic("in", key=key[0], value=int)
    app.operator("all", source=app.stream(topic, co_partitioned=True))(_operator(states, change))
    driver = TestDriver(app, partitions=2)
    driver.send(topic, 1, key=key[1])
    yield driver
    driver.stop()


def _check(driver: TestDriver, states: dict[str, Any], key: Any) -> None:
    """Every reader has one row of each store, and the printed form of each is JSON."""
    catalog = driver._wiring.catalog
    for name in states:
        entry = catalog.stores[f"all-{name}"]
        assert driver.state("all", name, key=key) is not None, name
        request = TableRequest(app="held", store=f"all-{name}")
        whole = read_table(driver.cluster, request)
        assert whole.num_rows == 1, name
        assert read_table(driver.cluster, request, keys=[key]).to_pylist() == whole.to_pylist(), name
        for task in driver._worker.tasks.values():
            decoder, store = StoreDecoder(entry), task.context.store(entry.name)
            for row in decoder.rows(store):
                shown = json.loads(json.dumps(as_fields(TaskRow("task", row))))
                text = shown["key"] if isinstance(shown["key"], str) else json.dumps(shown["key"])
                assert list(decoder.rows_of(store, decoder.key_bytes(text))) == [row], name


@pytest.mark.parametrize("name", SAMPLES)
def test_keys_and_elements_of_every_type(name: str) -> None:
    kind, sample = SAMPLES[name]
    states = {
        "value": sf.Value[int | None],
        "listed": sf.ListOf[int],
        "tags": sf.SetOf[kind],  # type: ignore[valid-type]
        "scores": sf.MapOf[kind, int],  # type: ignore[valid-type]
        "nested": sf.MapOf[kind, sf.MapOf[kind, int]],  # type: ignore[valid-type]
        "versioned": sf.Versioned[int],
        "counter": sf.Counter,
    }

    def change(held: Any) -> None:
        held.value.set(1)
        held.listed.append(1)
        held.tags.add(sample)
        held.scores.put(sample, 1)
        held.nested[sample].put(sample, 1)
        held.versioned.set(1, at=0)
        held.counter.add(1)

    for driver in _driver(states, change, (kind, sample)):
        _check(driver, states, sample)


def test_map_keys_of_declared_types_are_keys_of_a_dict() -> None:
    states = {
        "pairs": sf.MapOf[Pair, int],
        "points": sf.MapOf[Point, int],
        "nested": sf.MapOf[Pair, sf.MapOf[Point, int]],
    }

    def change(held: Any) -> None:
        held.pairs.put(Pair("a", 1), 2)
        held.points.put(Point(1), 3)
        held.nested[Pair("a", 1)].put(Point(1), 4)

    for driver in _driver(states, change, (str, "k")):
        assert driver.state("all", "pairs", key="k") == {Pair("a", 1): 2}
        ((point, number),) = driver.state("all", "points", key="k").items()
        assert (point, number) == ({"x": 1, "y": 7}, 3)
        (inner,) = driver.state("all", "nested", key="k").values()
        assert inner[point] == 4


@pytest.mark.parametrize("name", VALUES)
def test_values_of_every_type(name: str) -> None:
    kind, sample = VALUES[name]
    states = {
        "value": sf.Value[kind | None],  # type: ignore[valid-type]
        "listed": sf.ListOf[kind],  # type: ignore[valid-type]
        "scores": sf.MapOf[str, kind],  # type: ignore[valid-type]
        "nested": sf.MapOf[str, sf.MapOf[int, kind]],  # type: ignore[valid-type]
        "versioned": sf.Versioned[kind],  # type: ignore[valid-type]
    }

    def change(held: Any) -> None:
        held.value.set(sample)
        held.listed.append(sample)
        held.scores.put("s", sample)
        held.nested["s"].put(1, sample)
        held.versioned.set(sample, at=0)

    for driver in _driver(states, change, (str, "k")):
        _check(driver, states, "k")


def _keyed(kind: Any, *keys: Any) -> Iterator[TestDriver]:
    app = sf.App("held")
    topic = app.topic("in", key=kind, value=int)
    app.stream(topic, co_partitioned=True).count(name="n")
    driver = TestDriver(app, partitions=2)
    for key in keys:
        driver.send(topic, 1, key=key)
    yield driver
    driver.stop()


def _found(driver: TestDriver, *keys: object) -> list[str]:
    return sorted(
        read_table(driver.cluster, TableRequest(app="held", store="n"), keys=keys)["key"].to_pylist()
    )


def test_keys_given_to_read_state_are_values_or_the_text_that_it_shows() -> None:
    for driver in _keyed(int | str, "q", 5, "5"):
        assert _found(driver, "q") == _found(driver, '"q"') == ['"q"']
        assert (_found(driver, 5), _found(driver, "5"), _found(driver, '"5"')) == (["5"], ['"5"'], ['"5"'])
        assert _found(driver, "nobody", 5) == ["5"]
    for driver in _keyed(Point, Point(1), Point(2)):
        for key in (Point(1), {"x": 1, "y": 7}, '{"x": 1, "y": 7}', '{"y":7,"x":1}'):
            assert _found(driver, key) == ['{"x": 1, "y": 7}']
    for driver in _keyed(datetime, NOON):
        assert _found(driver, NOON) == _found(driver, "2026-01-02T12:00:00Z") != []
        assert _found(driver, '"2026-01-02T12:00:00Z"') != []
    for driver in _keyed(int, 5):
        with pytest.raises(ConfigError, match="'q' is not a key of this table"):
            _found(driver, "q")


@pytest.mark.parametrize(
    ("kind", "key", "texts"),
    [
        (datetime, NOON, ["2026-01-02T12:00:00Z", '"2026-01-02T12:00:00+00:00"', "2026-01-02 12:00:00Z"]),
        (sf.MsgPackOf(datetime), NOON, ["2026-01-02T12:00:00Z", '"2026-01-02T13:00:00+01:00"']),
        (sf.MsgPackOf(tuple[bytes, datetime]), (b"\xff", NOON), ['["/w==", "2026-01-02T12:00:00Z"]']),
        (bytes, b"\xff\x00", ["hex:ff00", "base64:/wA="]),
        (bytes, b"hex:1", ["text:hex:1", "hex:6865783a31"]),
        (bytes, b"ada", ["ada", "hex:616461"]),
        (UUID, UUID(int=7), ["00000000-0000-0000-0000-000000000007"]),
        (Colour, Colour.RED, ["red", '"red"']),
        (int | str, "q", ["q", '"q"', "hex:227122"]),
        (int | str, 5, ["5"]),
        (int | str, "5", ['"5"']),
        (int | None, 5, ["5"]),
        (sf.MsgPackOf(Point), Point(1), ['{"y": 7, "x": 1}', '{"x": 1}']),
        (Pair, Pair("a", 1), ['["a", 1]']),
        (sf.WindowedKey(sf.String, 60_000), sf.Windowed("a", 60_000, 120_000), ['["a", 60000, 120000]']),
    ],
)
def test_forms_of_keys_that_a_person_may_write(kind: Any, key: Any, texts: list[str]) -> None:
    for driver in _keyed(kind, key):
        decoder = StoreDecoder(driver._wiring.catalog.stores["n"])
        written = [*dict.fromkeys(decoder.key_bytes(text) for text in texts)]
        assert written == [decoder.routing_key(key)]


def test_what_is_no_key_is_refused() -> None:
    for kind, text in [(int, "q"), (bytes, "hex:fg"), (Point, "ada"), (sf.MsgPackOf(tuple[bytes]), '["?"]')]:
        for driver in _keyed(kind):
            with pytest.raises(ConfigError, match="is not a key of n"):
                StoreDecoder(driver._wiring.catalog.stores["n"]).key_bytes(text)
