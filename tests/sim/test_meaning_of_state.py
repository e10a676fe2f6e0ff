"""A start with code to which the state means something else: refused, although its bytes could be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import pytest

import stateflow as sf
from stateflow.catalog.encoding import decode_entry, encode_item
from stateflow.catalog.evolution import evolved
from stateflow.catalog.model import StoreEntry
from stateflow.errors import CatalogIncompatible
from stateflow.operators.aggregates.aggregates import Aggregate
from stateflow.testing import TestDriver

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
Made = Callable[[Any], Any]


def aggregated(aggregate: Callable[[], Aggregate[Any, Any, Any]]) -> Made:
    return lambda stream: stream.aggregate(aggregate(), name="n")


def counted(window: Any) -> Made:
    return lambda stream: stream.window(window).count(name="n")


def app_of(made: Made) -> tuple[sf.App, Any]:
    app = sf.App("meaning")
    numbers = app.topic("numbers", key=str, value=sf.Json)
    made(app.stream(numbers, co_partitioned=True))
    return app, numbers


CHANGED: list[tuple[Made, Made, str]] = [
    (
        lambda s: s.max("x", name="n"),
        lambda s: s.min("x", name="n"),
        r'aggregate is "min" in the code, "max"',
    ),
    (aggregated(sf.first), aggregated(sf.last), '"last"'),
    (aggregated(lambda: sf.count("x")), lambda s: s.aggregate(sf.max("x", type=int), name="n"), "max"),
    (aggregated(lambda: sf.collect(limit=2)), aggregated(sf.first), "first"),
    (aggregated(lambda: sf.fold(None, lambda a, _: a)), aggregated(sf.last), "last"),
    (
        lambda s: s.aggregate(name="n", a=sf.count(), b=sf.max("x")),
        lambda s: s.aggregate(name="n", a=sf.count(), b=sf.min("x")),
        '"b":"min"',
    ),
    (counted(sf.Calendar("day", "Europe/Berlin")), counted(sf.Calendar("day", "Europe/Lisbon")), "Lisbon"),
    (counted(sf.Tumbling(DAY)), counted(sf.Tumbling(DAY, offset=HOUR)), "window"),
    (counted(sf.Tumbling(DAY)), counted(sf.Hopping(DAY, advance=HOUR)), "window"),
    (counted(sf.Hopping(DAY, advance=HOUR)), counted(sf.Hopping(DAY, advance=2 * HOUR)), "window"),
]
SAME: list[tuple[Made, Made]] = [
    (lambda s: s.max("x", name="n"), aggregated(lambda: sf.max("x"))),
    (aggregated(lambda: sf.histogram("x")), aggregated(lambda: sf.quantile(0.5, "x"))),
    (aggregated(lambda: sf.collect(limit=2)), aggregated(lambda: sf.collect(limit=3))),
    (counted(sf.Tumbling(DAY)), counted(sf.Hopping(DAY, advance=DAY, grace=HOUR))),
]


@pytest.mark.parametrize(("old", "new", "why"), CHANGED)
def test_another_aggregate_or_window_is_refused(old: Made, new: Made, why: str) -> None:
    driver = TestDriver(app_of(old)[0], partitions=1)
    with pytest.raises(CatalogIncompatible, match=why):
        driver.upgrade(app_of(new)[0])


@pytest.mark.parametrize(("old", "new"), SAME)
def test_the_same_said_otherwise_goes_on(old: Made, new: Made) -> None:
    app, numbers = app_of(old)
    driver = TestDriver(app, partitions=1)
    driver.send(numbers, {"x": 1}, key="a", timestamp_ms=1_000)
    driver.upgrade(app_of(new)[0])
    assert driver.state("n", key="a")


def kept(type_: Any) -> type:
    shape: Any = make_dataclass("Shape", [("a", type_ | None, None)])

    class Keeps(sf.Operator[str, Any, None]):
        kept: sf.Value[shape | None] = sf.state()

        def on_record(self, value: Any, ctx: sf.Context[None]) -> None:
            self.kept.set(shape())

    Keeps.__annotations__["kept"] = sf.Value[shape | None]
    return Keeps


@pytest.mark.parametrize(
    ("old", "new"),
    [(date, datetime), (str, datetime), (datetime, str), (dict[str, int], dict[int, int]), (bytes, str)],
)
def test_a_field_of_another_type_is_refused(old: Any, new: Any) -> None:
    driver = TestDriver(app_of(lambda s: s.process(kept(old), name="n"))[0], partitions=1)
    with pytest.raises(CatalogIncompatible, match="value_codec"):
        driver.upgrade(app_of(lambda s: s.process(kept(new), name="n"))[0])


def test_an_entry_that_says_less_is_accepted_and_completed() -> None:
    app, _ = app_of(lambda s: s.max("x", name="n"))
    (entry,) = app.topology().stores
    less = {
        name: value
        for name, value in msgspec.to_builtins(entry).items()
        if name not in ("value_details", "filled_by")
    }
    found = decode_entry("meaning", b"store/n", msgspec.json.encode(less))
    assert isinstance(found, StoreEntry)
    assert found.filled_by is None
    assert evolved(entry, found) == entry
    key, value = encode_item(entry)
    assert value is not None
    assert decode_entry("meaning", key, value) == entry
