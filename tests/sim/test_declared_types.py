"""A value of another type than its state declares: an error at its record, and never state that cannot be read."""

from __future__ import annotations

from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.testing import TestDriver


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
