"""The late records of a window as a stream: exactly those that its aggregates leave out."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.testing import TestDriver

MINUTE_MS = 60_000
T0 = 1_700_000_040_000
WINDOW = sf.Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10))


class Site:
    """Counts per minute, and what was late for that, of an input whose batches the test cuts."""

    def __init__(self, partitions: int = 1, *, rekeyed: bool = False) -> None:
        app = sf.App("shop")
        self.orders = app.topic("orders", key=str, value=int)
        self.counts = app.topic("counts", key=sf.WindowedKey(sf.String, MINUTE_MS), value=int)
        self.late = app.topic("late", key=str, value=int)
        stream = app.stream(self.orders, co_partitioned=True)
        keyed = stream.key_by(lambda value: "ab"[value % 2], name="by", key=str) if rekeyed else stream
        minutes = keyed.window(WINDOW, emit="on_close")
        minutes.count(name="per-minute").to(self.counts)
        minutes.late().to(self.late)
        self.driver = TestDriver(app, partitions=partitions)

    def read(self, *records: tuple[int, int], partition: int = 0) -> None:
        """One batch of (value, ms after T0)."""
        writer = self.driver.cluster.writer()
        for value, after_ms in records:
            writer.send(
                "orders",
                b"ab"[value % 2 : value % 2 + 1],
                sf.Integer.encode(value),
                partition=partition,
                timestamp_ms=T0 + after_ms,
            )
        writer.commit()
        writer.close()
        self.driver.run()

    def late_values(self) -> list[int]:
        return sorted(record.value for record in self.driver.output(self.late))

    def counted(self) -> int:
        """Records in windows, once all of these are closed."""
        self.driver.advance_event_time(T0 + 1_000 * MINUTE_MS)
        return sum(record.value for record in self.driver.output(self.counts))


def test_late_records_keep_their_keys_and_times() -> None:
    site = Site()
    site.read((0, 0), (1, 70_000), (2, 59_999), (3, 69_999))
    (record,) = site.driver.output(site.late)
    assert (record.key, record.value, record.timestamp_ms) == ("a", 2, T0 + 59_999)
    assert site.counted() == 3


Log = st.lists(st.integers(0, 400_000), max_size=25)


@settings(max_examples=40, deadline=None)
@given(log=Log, cuts=st.sets(st.integers(1, 24)), rekeyed=st.booleans(), crash_at=st.integers(0, 25))
def test_every_record_is_counted_or_late_whatever_the_batches(
    log: list[int], cuts: set[int], rekeyed: bool, crash_at: int
) -> None:
    expected = Counter[str]()
    mark = -1
    for when in log:
        mark = max(mark, when)
        is_late = mark + T0 >= (T0 + when) // MINUTE_MS * MINUTE_MS + MINUTE_MS + 10_000
        expected["late" if is_late else "counted"] += 1
    records = list(enumerate(log))
    edges = [0, *sorted(cut for cut in cuts if cut < len(log)), len(log)]
    site = Site(rekeyed=rekeyed)
    for first, after in pairwise(edges):
        site.read(*records[first:after])
        if first <= crash_at < after:
            site.driver.crash()
            site.driver.restore()
    assert len(site.late_values()) == expected["late"]
    assert site.counted() == expected["counted"]


def test_what_comes_after_a_silence_is_late_where_its_window_was_closed() -> None:
    """The exception: its mark does not say so, the clock did. Aggregates and the stream agree all the same."""
    site = Site(partitions=2, rekeyed=True)
    site.read((0, 0), partition=0)
    site.read((0, 0), partition=1)
    site.read((0, 600_000), partition=0)
    site.driver.advance(seconds=6)
    site.read((2, 1_000), (4, 600_001), partition=1)
    site.driver.advance(seconds=6)
    assert site.late_values() == [2]
    (met,) = [met for task in site.driver._worker.tasks.values() for met in task.out_of_bounds.met()]
    assert met.off_ms == 599_000, "behind event time as the window was told of it"
    assert site.counted() == 4


def test_late_records_can_be_counted_in_a_window_with_a_longer_grace() -> None:
    app = sf.App("shop")
    orders = app.topic("orders", key=str, value=int)
    out = app.topic("out", key=str, value=int)
    minutes = app.stream(orders, co_partitioned=True).window(WINDOW)
    minutes.count(name="per-minute")
    hour = sf.Tumbling(timedelta(minutes=1), grace=timedelta(hours=1))
    minutes.late().map(abs).window(hour).sum(name="corrections").to(out)
    driver = TestDriver(app, partitions=1)
    for after_ms in (0, 70_000, 1, 4_000_000, 2):
        driver.send(orders, -5, key="a", timestamp_ms=T0 + after_ms)
    assert [record.value for record in driver.output(out)] == [5], "the last one is late for that, too"


def test_types_and_refusals() -> None:
    app = sf.App("shop")
    stream: sf.Stream[bytes, int] = app.stream(app.topic("orders", value=int))
    with pytest.raises(GraphError, match="no key of its own"):
        stream.window(WINDOW).late()
    keyed = stream.key_by(str, name="by")
    late: sf.Stream[str, int] = keyed.window(WINDOW).late()
    late.peek(print)
    steps: list[Any] = [step["kind"] for step in app.describe()["stages"][0]["steps"]]
    assert "late" not in steps
