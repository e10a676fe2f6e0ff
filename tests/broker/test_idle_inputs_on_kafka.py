"""Two source partitions of the same event time, of which one is read after the other: neither may be called idle."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.command_site import APPS, Site

pytestmark = pytest.mark.broker

T0 = 1_795_000_000_000 // 5_000 * 5_000
RECORDS = 2_000
"""Per partition: one poll brings all of one, and takes four times as long to process as ``idle_seconds``."""


def test_an_input_that_waits_behind_a_slow_batch_loses_no_record(site: Site) -> None:
    site.set(SENSORS_APP=site.name, STATEFLOW_IDLE_SECONDS="0.5", STATEFLOW_POLL_RECORDS_MAX=str(RECORDS))
    site.topic("in", partitions=2)
    site.topic("windows")
    expected: Counter[tuple[bytes, int]] = Counter()
    writer = site.cluster.writer()
    for partition in (0, 1):
        sensors = [f"p{partition}s{index % 5}".encode() for index in range(RECORDS)]
        stamps_ms = [T0 + index * 50 for index in range(RECORDS)]
        writer.send_many(f"{site.name}-in", sensors, sensors, partitions=partition, timestamps_ms=stamps_ms)
        expected.update(
            (sensor, stamp // 5_000 * 5_000) for sensor, stamp in zip(sensors, stamps_ms, strict=True)
        )
    writer.commit()
    writer.close()
    drained = site.drained(f"{APPS / 'sensors.py'}:app")
    assert drained.code == 0, drained.err
    newest = {
        (record.key[:-8], int.from_bytes(record.key[-8:], "big")): int.from_bytes(record.value or b"", "big")
        for record in site.records("windows")
        if record.key is not None
    }
    assert newest == expected
