"""The demo's application on real flights, crashed and repartitioned in memory, against the demo's oracle."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from stateflow.app import load
from stateflow.testing import TestDriver

FOLDER = Path(__file__).parents[2] / "examples" / "flights"
sys.path.insert(0, str(FOLDER))
try:
    import feed
    import oracle
    from compare import compare, compare_ranking
finally:
    sys.path.remove(str(FOLDER))

FLIGHTS = 4000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def records() -> list[feed.Departure]:
    return feed.departures(FLIGHTS)


answers = cache(oracle.answers)


def send(driver: TestDriver, records: Sequence[feed.Departure]) -> None:
    """As the feed does, at once."""
    writer = driver.cluster.writer()
    keys, values, times_ms = (
        [r.key for r in records],
        [r.value for r in records],
        [r.event_ms for r in records],
    )
    writer.send_many(feed.TOPIC, keys, values, partitions=-1, timestamps_ms=times_ms)
    writer.commit()
    writer.close()
    driver.run()


def check(driver: TestDriver, flights: int) -> None:
    """Every final result equals the oracle's."""
    app = sys.modules["app"]
    right = answers(flights)
    hours = {(r.key.key, r.key.start_ms): r.value for r in driver.output(app.hourly)}
    hourly = {key: {name: getattr(row, name) for name in row.__struct_fields__} for key, row in hours.items()}
    planes = {r.key: r.value for r in driver.output(app.aircraft)}
    aircraft = {
        key: {name: getattr(row, name) for name in row.__struct_fields__} for key, row in planes.items()
    }
    (*_, newest) = driver.output(app.top)
    for found in (
        compare("hourly", right.hourly, hourly),
        compare("aircraft", right.aircraft, aircraft),
        compare_ranking("top", right.top, newest.value),
    ):
        assert found.equal, found


def test_results_survive_a_lost_machine_and_other_partition_counts(records: list[feed.Departure]) -> None:
    driver = TestDriver(load(f"{FOLDER}/app.py:app"))
    send(driver, records[:1000])
    driver.crash(disk_lost=True)
    driver.restore()
    send(driver, records[1000:2000])
    driver.repartition(6)
    send(driver, records[2000:3000])
    driver.compact()
    driver.crash(disk_lost=True)
    driver.restore()
    driver.repartition(3)
    send(driver, records[3000:])
    check(driver, FLIGHTS)
