"""Time to live through restore, compaction and repartition: hidden at once, deleted with tombstones, never back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.changelog.format import is_reserved
from stateflow.testing.driver import TestDriver

SECOND = timedelta(seconds=1)
KEYS = [f"k{number}" for number in range(20)]


def sightings() -> tuple[sf.App, sf.Topic[bytes, str], sf.Topic[str, Any]]:
    """Remembers where each key was seen: odd seconds for ten seconds, even ones for a hundred."""
    app = sf.App("sightings")
    seen, out = app.topic("seen", value=str), app.topic("out", key=str, value=sf.Json)

    @app.operator("place", source=seen, key=lambda line: line.split()[0], sink=out)
    class Place(sf.Operator[str, str, Any]):
        last: sf.Value[str | None] = sf.state(ttl_per_write=True)
        all: sf.ListOf[str] = sf.state(ttl=50 * SECOND)

        def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
            _, place = value.split()
            if place != "?":
                odd = ctx.timestamp_ms // 1000 % 2 == 1
                self.last.set(place, ttl=10 * SECOND if odd else 100 * SECOND)
                self.all.append(place)
            ctx.emit([self.last.get(), list(self.all)])

    return app, seen, out


def logged(driver: TestDriver, store: str) -> set[bytes]:
    """Keys that the changelog of the active generation still holds a value for."""
    generation = driver._wiring.generation
    suffix = f"-g{generation}" if generation else ""
    newest = {
        record.key: record.value for record in driver._read(f"sightings-place-{store}-changelog{suffix}")
    }
    return {key for key, value in newest.items() if value is not None and not is_reserved(key)}


def asked(
    driver: TestDriver, seen: sf.Topic[bytes, str], out: sf.Topic[str, Any], second: int
) -> dict[str, Any]:
    driver.send(seen, *[f"{key} ?" for key in KEYS], timestamp_ms=second * 1000)
    return {record.key: record.value for record in driver.output(out)}


@pytest.mark.parametrize("disk_lost", [False, True])
def test_expired_state_stays_gone(disk_lost: bool) -> None:
    app, seen, out = sightings()
    driver = TestDriver(app, partitions=3)
    for index, key in enumerate(KEYS):
        driver.send(seen, f"{key} p{index}", timestamp_ms=(100 + index) * 1000)
    driver.advance_event_time(125_000)
    driver.crash(disk_lost=disk_lost)
    driver.restore()
    driver.repartition(5)
    found = asked(driver, seen, out, 126)
    alive = {key for index, key in enumerate(KEYS) if index % 2 == 0 or index + 10 > 25}
    assert {key for key, (last, _) in found.items() if last is not None} == alive
    assert all(every == [f"p{index}"] for index, (_, every) in enumerate(found[key] for key in KEYS))
    driver.advance_event_time(160_000)
    driver.compact()
    driver.crash(disk_lost=disk_lost)
    driver.restore()
    driver.advance_event_time(161_000)
    for _ in range(3):
        driver.advance(seconds=1)
    assert logged(driver, "last") == {key.encode() for index, key in enumerate(KEYS) if index % 2 == 0}
    assert len(logged(driver, "all")) == 2 * len([index for index in range(20) if index + 50 > 61])
    driver.advance_event_time(500_000)
    driver.advance(seconds=1)
    assert logged(driver, "last") == logged(driver, "all") == set()
    driver.compact()
    driver.repartition(2)
    assert asked(driver, seen, out, 501) == {key: [None, []] for key in KEYS}
