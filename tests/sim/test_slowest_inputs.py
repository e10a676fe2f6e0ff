"""What holds event time back is found from outside: the input that is least far, through all stages."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.record import TopicPartition
from stateflow.runtime.progress.draining import Drain, Quiet
from stateflow.runtime.progress.slowest_inputs import SlowestInput, slowest_inputs
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
MINUTE = 60_000


def counting() -> tuple[TestDriver, Any]:
    app = sf.App("m", guarantee="exactly-once", partitions=1)
    source, out = app.topic("a", key=str, value=str), app.topic("out", key=str, value=int)
    windows = app.stream(source).key_by(lambda value: value, name="by-k", key=str)
    counts = windows.window(sf.Tumbling(timedelta(minutes=1)), emit="on_close").count(name="n")
    counts.key_by(lambda count: str(count), name="by-n", key=str).count(name="per-n").to(out)
    return TestDriver(app, partitions=2), source


def held(driver: TestDriver) -> list[SlowestInput]:
    return slowest_inputs(driver.cluster, driver._wiring.catalog)


def send(driver: TestDriver, partition: int, timestamp_ms: int) -> None:
    writer = driver.cluster.writer()
    writer.send("a", b"k", b"x", partition=partition, timestamp_ms=timestamp_ms)
    writer.commit()
    writer.close()
    driver.run()


def test_the_partition_that_is_behind_is_named_in_all_stages_until_it_is_idle() -> None:
    driver, _ = counting()
    assert held(driver) == []
    send(driver, 1, T0)
    send(driver, 0, T0 + 10 * MINUTE)
    (first, *rest) = held(driver)
    assert first == SlowestInput("by-k-0", T0, "a-1", TopicPartition("a", 1), T0, T0 + 10 * MINUTE, 0)
    assert first.sentence == (
        "event time of by-k-0 is 2024-01-01 00:00:00.000+00:00: it waits for a[1] (through a-1), which is at"
        " 2024-01-01 00:00:00.000+00:00, 0:10:00 behind the furthest; read to its end and not idle"
    )
    assert {each.source for each in rest} <= {TopicPartition("a", 1)}
    driver.advance(seconds=6)
    assert held(driver) == [], "idle inputs are not waited for"


def test_an_input_of_which_nothing_has_come_holds_all_back() -> None:
    driver, _ = counting()
    send(driver, 0, T0)
    (first, *_) = held(driver)
    assert (first.waits_for, first.mark_ms, first.reached_ms, first.off_ms) == ("a-1", -1, -1, None)
    assert "of which nothing has come" in first.sentence


def test_a_drain_that_waits_says_so(caplog: pytest.LogCaptureFixture) -> None:
    driver, _ = counting()
    send(driver, 1, T0)
    send(driver, 0, T0 + 10 * MINUTE)
    drain = Drain(driver.cluster, driver._wiring, lambda: [Quiet("w0", 1, None)], are_all=True)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert not drain.is_over()
    (message,) = caplog.messages
    assert "w0 has timers or watermarks to send" in message
    assert "it waits for a[1]" in message
