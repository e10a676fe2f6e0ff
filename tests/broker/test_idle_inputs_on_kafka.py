"""Inputs that are behind, that hold event time back, and that come to their end, on a real broker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.broker.command_site import APPS, Site

pytestmark = pytest.mark.broker

T0 = 1_795_000_000_000 // 5_000 * 5_000
RECORDS = 2_000
"""Per partition: one poll brings all of one, and takes four times as long to process as ``idle_seconds``."""


TARGET = f"{APPS / 'sensors.py'}:app"


def feed(site: Site, stamps_ms: Sequence[Sequence[int]]) -> Counter[tuple[bytes, int]]:
    """Write readings at these times to partition 0, 1, …; returns how many are in each sensor's window."""
    expected: Counter[tuple[bytes, int]] = Counter()
    writer = site.cluster.writer()
    for partition, times_ms in enumerate(stamps_ms):
        sensors = [f"p{partition}s{index % 5}".encode() for index in range(len(times_ms))]
        writer.send_many(f"{site.name}-in", sensors, sensors, partitions=partition, timestamps_ms=times_ms)
        expected.update(
            (sensor, when // 5_000 * 5_000) for sensor, when in zip(sensors, times_ms, strict=True)
        )
    writer.commit()
    writer.close()
    return expected


def results(site: Site) -> list[tuple[tuple[bytes, int], int]]:
    return [
        (
            (record.key[:-8], int.from_bytes(record.key[-8:], "big")),
            int.from_bytes(record.value or b"", "big"),
        )
        for record in site.records("windows")
        if record.key is not None
    ]


def test_an_input_that_waits_behind_a_slow_batch_loses_no_record(site: Site) -> None:
    """Two source partitions of the same event time, of which one is read after the other: neither is idle."""
    site.set(SENSORS_APP=site.name, STATEFLOW_IDLE_SECONDS="0.5", STATEFLOW_POLL_RECORDS_MAX=str(RECORDS))
    site.topic("in", partitions=2)
    site.topic("windows")
    expected = feed(site, [[T0 + index * 50 for index in range(RECORDS)]] * 2)
    drained = site.drained(TARGET)
    assert drained.code == 0, drained.err
    assert dict(results(site)) == expected


def test_what_is_held_back_is_shown_and_closes_at_the_end_of_the_input(site: Site) -> None:
    site.set(SENSORS_APP=site.name, SENSORS_EMIT="on_close", STATEFLOW_IDLE_SECONDS="60")
    site.topic("in", partitions=2)
    site.topic("windows")
    expected = feed(site, [[T0 + index * 5_000 for index in range(200)], [T0]])
    assert site.drained(TARGET).code == 0
    assert results(site) == [], "the second partition holds event time back, and is not idle"
    (held,) = json.loads(site.type("workers", TARGET, "--json").out)["slowest_inputs"]
    assert (held["source"], held["mark_ms"]) == (f"{site.name}-in[1]", T0)
    assert f"{site.name}-in[1]" in site.type("describe", TARGET, "--live").out
    refused = site.type("run", TARGET, "--end-of-input")
    assert "give --until-drained, too" in refused.err
    ended = site.type("run", TARGET, "--workers", "2", "--until-drained", "--end-of-input")
    assert ended.code == 0, ended.err
    assert sorted(results(site)) == sorted(expected.items()), "each window closes once"
    assert json.loads(site.type("workers", TARGET, "--json").out)["slowest_inputs"] == []
