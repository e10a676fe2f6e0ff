"""An input that is merely behind is not idle: its records are in time however slow those before them are."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import stateflow as sf
from stateflow.testing import TestDriver

T0 = 1_704_067_200_000
WINDOW_MS = 5_000


def test_records_that_wait_behind_a_slow_batch_are_not_late() -> None:
    """One poll brings all of one partition; it takes longer than ``idle_seconds`` (5) to process."""
    app = sf.App("idle", guarantee="exactly-once", partitions=1)
    source = app.topic("in", key=str, value=str)
    out = app.topic("out", key=sf.WindowedKey(sf.String, WINDOW_MS), value=int)

    def slow(value: str) -> str:
        driver.clock.advance(seconds=0.002)
        return value

    keyed = app.stream(source).map(slow, value=str).key_by(lambda value: value, name="by", key=str)
    windows = keyed.window(sf.Tumbling(timedelta(milliseconds=WINDOW_MS)), emit="on_close")
    windows.count(name="per-window").to(out)
    driver = TestDriver(app, partitions=2)
    expected: Counter[tuple[str, int]] = Counter()
    writer = driver.cluster.writer()
    for partition in (0, 1):
        stamps = [T0 + index * 50 for index in range(10_000)]
        values = [f"p{partition}k{index % 5}" for index in range(10_000)]
        encoded = [value.encode() for value in values]
        writer.send_many("in", encoded, encoded, partitions=partition, timestamps_ms=stamps)
        expected.update(
            (value, stamp // WINDOW_MS * WINDOW_MS) for value, stamp in zip(values, stamps, strict=True)
        )
    writer.commit()
    writer.close()
    driver.run()
    driver.advance_event_time(T0 + 3_600_000)
    assert {(r.key.key, r.key.start_ms): r.value for r in driver.output(out)} == expected
