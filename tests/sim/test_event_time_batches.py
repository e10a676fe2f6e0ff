"""Event time goes by the log: the same records give the same results however they are cut into batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.testing import TestDriver

T0, MINUTE_MS = 1_700_000_040_000, 60_000
MINUTE = timedelta(minutes=1)

Row = tuple[str, int | None, int]
"""Key, value and time in ms after T0."""


def streamed(app: sf.App, *, through_rekey: bool) -> tuple[sf.Topic[str, Any], sf.Stream[str, Any]]:
    """A stream of ``in``, keyed as its records are or by their values' first part."""
    if not through_rekey:
        topic = app.topic("in", key=str, value=sf.Json)
        return topic, app.stream(topic, co_partitioned=True)
    topic = app.topic("in", key=str, value=sf.Json)
    return topic, app.stream(topic).key_by(lambda row: row[0], name="by-key", key=str, value=sf.Json)


def feed(driver: TestDriver, topic: sf.Topic[str, Any], batches: Sequence[Sequence[Row]]) -> None:
    """Each batch is one commit of the producer, and one poll of the source task."""
    for batch in batches:
        writer = driver.cluster.writer()
        for key, value, when_ms in batch:
            data = None if value is None else topic.value.encode([key, value])
            writer.send("in", topic.key.encode(key), data, partition=0, timestamp_ms=T0 + when_ms)
        writer.commit()
        writer.close()
        driver.run()


def told(driver: TestDriver, topic: sf.Topic[str, Any]) -> list[tuple[str, int, Any]]:
    """Key, time in ms after T0, and value of every output, in order."""
    return [(record.key, record.timestamp_ms - T0, record.value) for record in driver.output(topic)]


def by_record(rows: Sequence[Row]) -> list[list[Row]]:
    return [[row] for row in rows]


@pytest.mark.parametrize("through_rekey", [False, True])
@pytest.mark.parametrize("cut", [len, lambda _rows: 1, lambda _rows: 2])
def test_what_is_late_does_not_depend_on_batches(cut: Any, through_rekey: bool) -> None:
    app = sf.App("minutes")
    topic, stream = streamed(app, through_rekey=through_rekey)
    out = app.topic("out", key=str, value=int)
    stream.window(sf.Tumbling(MINUTE), emit="on_close").count(name="n").to(out)
    driver = TestDriver(app, partitions=1)
    rows: list[Row] = [("a", 1, when_ms) for when_ms in (0, 5 * MINUTE_MS, 1, 2, 3)]
    size = cut(rows)
    feed(driver, topic, [rows[first : first + size] for first in range(0, len(rows), size)])
    driver.advance_event_time(T0 + 100 * MINUTE_MS)
    assert told(driver, out) == [("a", 0, 1), ("a", 5 * MINUTE_MS, 1)]
