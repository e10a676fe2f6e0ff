"""Timers, per-write times to live and a change of schema on a real broker, through a kill and the command line."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest

from tests.broker.command_site import APPS, Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

KEYS = [f"k{number}" for number in range(12)]
TARGET = f"{APPS / 'visits.py'}:app"


def ends(site: Site) -> Counter[tuple[str, str]]:
    return Counter((str(record.key), str(record.value)) for record in site.records("out"))


def test_timers_fire_once_through_a_kill_and_state_changes_its_schema(site: Site) -> None:
    site.set(VISITS_APP=site.name, STATEFLOW_FLUSH_INTERVAL_SECONDS="0.2")
    site.topic("in", "out")
    site.feed([f"{key} x".encode() for key in KEYS for _ in range(2)])
    drained = site.drained(TARGET)
    assert drained.code == 0, drained.err
    where = ("--target", TARGET, "--json")
    timers = json.loads(site.type("state", "scan", "visits-timers", *where).out)["rows"]
    assert {row["key"] for row in timers} == set(KEYS), "pending timers outlive the worker"
    listed = json.loads(site.type("state", "list", "--json").out)["stores"]
    assert {row["store"] for row in listed} >= {"visits-timers", "visits-seen", "visits-pages"}

    first = site.begin("run", TARGET)
    try:
        wait_until(lambda: len(site.records("out")) > 0, lambda: f"a timer in:\n{first.said}")
    finally:
        first.send(signal.SIGKILL)
        first.ended()
    second = site.begin("run", TARGET)
    try:
        wait_until(lambda: len(site.records("out")) >= len(KEYS), lambda: f"all timers in:\n{second.said}")
        wait_until(lambda: "is running" in second.said, lambda: f"a running task in:\n{second.said}")
        second.send(signal.SIGTERM)
        assert second.ended() == 0, second.said
    finally:
        second.close()
    assert ends(site) == {(f"b'{key}'", "b'[\"silent\",2,1]'"): 1 for key in KEYS}
    pages = json.loads(site.type("state", "get", "visits-pages", "k1", *where).out)["rows"]
    assert {row["map_key"] for row in pages if "expires_ms" not in row} == {"long"}

    site.set(VISITS_VERSION="2")
    planned = json.loads(site.type("state", "migrate", TARGET, "--dry-run", "--json").out)
    assert planned["stores"] == [{"store": "visits-seen", "present": 2, "values": {"1": len(KEYS)}}]
    site.feed([b"k1 again"])
    migrated = site.type("state", "migrate", TARGET, "--json")
    assert migrated.code == 0, migrated.err
    assert json.loads(migrated.out)["written"] == len(KEYS)
    assert site.drained(TARGET).code == 0
    rows = json.loads(site.type("state", "get", "visits-seen", "k1", *where).out)["rows"]
    assert [row["value"] for row in rows] == [{"times": 3, "last": "k1 again"}]
    assert "present schemas" in site.type("state", "migrate", TARGET, "--dry-run").out
    site.set(VISITS_VERSION="1")
    refused = site.drained(TARGET)
    assert refused.code == 40
    assert "version is 1 in the code, 2 in the catalog" in refused.err
