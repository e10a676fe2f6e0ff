"""Late records and those of the future on a real broker: to their topics, and shown by ``stateflow workers``."""

from __future__ import annotations

import json

import pytest

from stateflow.codec.scalar import Integer
from stateflow.record import TopicPartition
from tests.broker.command_site import APPS, Site

pytestmark = pytest.mark.broker

TARGET = f"{APPS / 'minutes.py'}:app"
T0 = 1_700_000_040_000
FAR_MS = 4_000_000_000_000  # of the year 2096


def test_late_records_are_sent_on_and_shown(site: Site) -> None:
    site.set(MINUTES_APP=site.name)
    site.topic("in", "out", "late", "dead")
    site.feed([T0, FAR_MS, T0 + 300_000, T0 + 1, T0 + 300_001], key=b"k")
    drained = site.drained(TARGET)
    assert drained.code == 0, drained.err
    assert [Integer.decode(record.value) for record in site.records("late")] == [T0 + 1]
    assert [Integer.decode(record.value) for record in site.records("dead")] == [FAR_MS]
    assert sum(Integer.decode(record.value) for record in site.records("out")[-2:]) == 3

    shown = json.loads(site.type("workers", TARGET, "--json").out)["out_of_bounds"]
    late, ahead = shown
    source = TopicPartition(f"{site.name}-in", 0)
    assert (late["kind"], late["task"], late["step"]) == ("late", "by-key-0", "per-minute")
    assert (late["records_total"], late["off_ms"]) == (1, 299_999)
    assert (ahead["kind"], ahead["step"], ahead["place"]) == ("ahead", source.topic, f"{source}@1")
    assert site.type("workers", TARGET).out.count("per-minute") == 1
