"""Which stages call code of the application for their records: it may take any time, so their slices are short."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.optional import OptionalCodec
from stateflow.testing import TestDriver

MINUTE = sf.Tumbling(timedelta(minutes=1))
Build = Callable[[Any], object]


class Kept(sf.Operator[str, Any, Any]):
    """An operator class, whatever it does."""

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        """Nothing."""


class Sealed(sf.Codec[Any]):
    """A codec of an application, which may ask another machine for a key."""

    def _encode(self, value: Any) -> bytes:
        return bytes(value)

    def _decode(self, data: bytes) -> Any:
        return data

    def describe(self) -> dict[str, Any]:
        """A codec that only the application knows."""
        return {"codec": "sealed"}


def stages_that_call(
    build: Build, value: sf.Codec[Any] = sf.Json, timestamp: Callable[[Any], int] | None = None
) -> dict[str, bool]:
    app = sf.App("shop")
    orders = app.topic("orders", key=str, value=value, timestamp=timestamp)
    build(app.stream(orders, co_partitioned=True))
    driver = TestDriver(app)
    driver.run()
    return {task.wiring.stage.name: task.calls_application for task in driver._worker.tasks.values()}


@pytest.mark.parametrize(
    "build",
    [
        lambda orders: orders.count(name="n"),
        lambda orders: orders.sum("cents", name="n"),
        lambda orders: orders.filter(sf.col("cents") > 0).aggregate(name="n", cents=sf.sum(sf.col("cents") * 2)),
        lambda orders: orders.window(MINUTE).sum("cents", name="n"),
        lambda orders: orders.window(MINUTE).count(name="n"),
    ],
    ids=["count", "field", "columns", "window", "window count"],
)  # fmt: skip
def test_names_of_fields_and_column_expressions_are_none(build: Build) -> None:
    assert stages_that_call(build) == {"orders": False}


@pytest.mark.parametrize(
    "build",
    [
        lambda orders: orders.filter(bool).count(name="n"),
        lambda orders: orders.map(len).count(name="n"),
        lambda orders: orders.sum(len, name="n"),
        lambda orders: orders.reduce(max, name="n"),
        lambda orders: orders.window(MINUTE).sum(len, name="n"),
        lambda orders: orders.count(name="n").map(str).count(name="m"),
        lambda orders: orders.process(Kept, name="kept"),
        lambda orders: orders.flat_map(list).count(name="n"),
        lambda orders: orders.peek(print).count(name="n"),
    ],
    ids=["filter", "map", "number", "reduce", "window", "behind a count", "class", "flat map", "peek"],
)
def test_functions_and_classes_are(build: Build) -> None:
    assert stages_that_call(build) == {"orders": True}


def test_so_is_an_event_time_by_a_function_and_not_one_by_a_field() -> None:
    assert stages_that_call(lambda orders: orders.count(name="n"), timestamp=len) == {"orders": True}
    assert stages_that_call(lambda orders: orders.count(name="n"), timestamp=sf.col("at")) == {
        "orders": False
    }


def test_so_is_a_codec_of_the_application_wherever_it_stands() -> None:
    assert stages_that_call(lambda orders: orders.count(name="n"), Sealed()) == {"orders": True}
    assert stages_that_call(lambda orders: orders.count(name="n"), OptionalCodec(Sealed())) == {
        "orders": True
    }
    assert stages_that_call(
        lambda orders: orders.key_by("shop", name="by-shop", key=Sealed()).count(name="n")
    ) == {"orders": True, "by-shop": False}


@pytest.mark.parametrize(
    ("key", "value", "calls"),
    [(str, int, False), (sf.Json, sf.MsgPack, False), (Sealed(), int, True), (str, Sealed(), True)],
)
def test_writing_to_a_topic_is_none_but_for_its_codecs(key: Any, value: Any, calls: bool) -> None:
    counts = sf.App("shop").topic("counts", key=key, value=value)
    assert stages_that_call(lambda orders: orders.count(name="n").to(counts)) == {"orders": calls}


def test_choosing_a_topic_is() -> None:
    cheap, dear = (sf.App("shop").topic(name, key=str, value=sf.Json) for name in ("cheap", "dear"))

    def choose(orders: Any) -> None:
        orders.to(lambda order: dear if order["cents"] > 99 else cheap, among=[cheap, dear])

    assert stages_that_call(choose) == {"orders": True}


def test_each_stage_by_its_own() -> None:
    assert stages_that_call(lambda orders: orders.key_by(str, name="by-text").count(name="n")) == {
        "orders": True,
        "by-text": False,
    }
    assert stages_that_call(lambda orders: orders.key_by("shop", name="by-shop").reduce(max, name="n")) == {
        "orders": False,
        "by-shop": True,
    }
