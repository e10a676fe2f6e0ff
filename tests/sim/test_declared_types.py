"""A value of another type than its state declares: an error at its record, and never state that cannot be read."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import EncodeError
from stateflow.testing import TestDriver


class Kind(enum.Enum):
    BUY = "buy"


@dataclass
class Base:
    x: int = 0


@dataclass
class Derived(Base):
    y: int = 0


class OfInts(sf.Operator[str, Any, Any]):
    kept: sf.Value[dict[str, int]] = sf.state(default={})

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        self.kept.set({**self.kept.get(), "n": value})
        ctx.emit(self.kept.get()["n"])


class OfObjects(sf.Operator[str, Any, Any]):
    kept: sf.Value[Base | None] = sf.state()

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        before = self.kept.get() or Base()
        self.kept.set(Derived(before.x, 1) if value == "derived" else Base(value))
        ctx.emit(value)


class OfMaps(sf.Operator[str, Any, Any]):
    kept: sf.MapOf[str, list[Base]] = sf.state()

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        self.kept.put("a", [Derived() if value == "derived" else Base(value)])
        ctx.emit(self.kept["a"][0].x)


class OfLists(sf.Operator[str, Any, Any]):
    kept: sf.ListOf[Base] = sf.state()

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        self.kept.append(Derived() if value == "derived" else Base(value))
        ctx.emit(sum(each.x for each in self.kept))


class OfHistories(sf.Operator[str, Any, Any]):
    kept: sf.Versioned[Base] = sf.state(max_versions=2)

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        self.kept.set(Derived() if value == "derived" else Base(value))
        ctx.emit(value)


class OfCounts(sf.Operator[str, Any, Any]):
    kept: sf.Value[dict[Any, int]] = sf.state(default={})

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        counts, key = self.kept.get(), Kind.BUY if value == "derived" else value
        self.kept.set({**counts, key: counts.get(key, 0) + 1})
        ctx.emit(len(self.kept.get()))


def driver_of(operator: type, **options: Any) -> tuple[TestDriver, Any, Any, Any]:
    app = sf.App("kept")
    values, out = app.topic("values", key=str, value=sf.Json), app.topic("out", key=str, value=sf.Json)
    dead = app.topic("dead", value=sf.Json)
    app.stream(values, co_partitioned=True).process(operator, name="shops", **options).to(out)
    return TestDriver(app, partitions=1), values, out, dead


@pytest.mark.parametrize(
    ("operator", "values", "bad"),
    [
        (OfInts, [1, 2.5, 2], 2.5),
        (OfObjects, [1, "text", 2], "text"),
        (OfObjects, [1, "derived", 2], "derived"),
        (OfMaps, [1, "derived", 2], "derived"),
        (OfMaps, [1, "text", 2], "text"),
        (OfLists, [1, "derived", 1], "derived"),
        (OfHistories, [1, "derived", 2], "derived"),
        (OfCounts, ["a", "derived", "b"], "derived"),
    ],
)
def test_a_part_of_another_type_is_an_error_at_its_record(
    operator: type, values: list[Any], bad: Any
) -> None:
    driver, topic, out, dead = driver_of(operator, on_error=sf.DeadLetter("dead"))
    driver.send_many(topic, [("a", value, 1_000 + at) for at, value in enumerate(values)])
    assert [record.value for record in driver.output(dead)] == [bad]
    assert [record.value for record in driver.output(out)] in ([1, 2], [values[0], values[2]])


def test_the_error_names_state_key_and_step() -> None:
    driver, values, *_ = driver_of(OfInts)
    with pytest.raises(EncodeError) as raised:
        driver.send(values, 2.5, key="a")
    for named in ("step 'shops'", "values[0] offset 0", "key b'a'", "state 'shops-kept'", "dict[str, int]"):
        assert named in str(raised.value)


def test_what_a_table_of_groups_keeps_is_checked() -> None:
    app = sf.App("groups")
    values, dead = app.topic("values", key=str, value=sf.Json), app.topic("dead", value=bytes)

    def add(total: Base, value: int) -> Base:
        return Derived(total.x + value) if value > 1 else Base(total.x + value)

    def remove(total: Base, value: int) -> Base:
        return Base(total.x - value)

    def group(_value: Any) -> str:
        return "all"

    table = app.table(values, name="rows").group_by(group, name="by-all")
    table.aggregate(initial=Base, add=add, remove=remove, name="totals", on_error=sf.DeadLetter("dead"))
    driver = TestDriver(app, partitions=1)
    driver.send_many(values, [("a", 1, 1_000), ("b", 2, 2_000), ("c", 1, 3_000)])
    assert len(driver.output(dead)) == 1
    assert driver.state("totals", key="all")["x"] == 2


@pytest.mark.parametrize("windowed", [False, True])
def test_a_value_of_another_type_is_an_error_at_its_record(windowed: bool) -> None:
    app = sf.App("least")
    numbers, out = app.topic("numbers", key=str, value=sf.Json), app.topic("out", key=str, value=sf.Json)
    dead = app.topic("dead", value=sf.Json)
    keyed = app.stream(numbers, co_partitioned=True)
    grouped = keyed.window(sf.Tumbling(timedelta(hours=1)), emit="on_close") if windowed else keyed
    grouped.aggregate(sf.min(type=int), name="least", on_error=sf.DeadLetter("dead")).to(out)
    driver = TestDriver(app, partitions=1)
    for value, at_ms in [(3, 1_000), (2.5, 2_000), (2, 3_000), (9, 9_000_000)]:
        driver.send_many(numbers, [("a", value, at_ms)])
    assert [record.value for record in driver.output(dead)] == [2.5]
    assert [record.value for record in driver.output(out)] == ([2] if windowed else [3, 2, 2])
