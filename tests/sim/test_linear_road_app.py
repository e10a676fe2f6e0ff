"""The example of Linear Road on known traffic, crashed and repartitioned in memory: every answer, once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stateflow.lab.linear_road.answers import compare, parsed
from stateflow.lab.linear_road.generator import Load, Record, Traffic
from stateflow.lab.linear_road.oracle import answers
from stateflow.testing import TestDriver
from tests.unit.lab.test_linear_road import known

FOLDER = Path(__file__).parents[2] / "examples" / "linear_road"
sys.path.insert(0, str(FOLDER))
try:
    import road
finally:
    sys.path.remove(str(FOLDER))


def send(driver: TestDriver, records: list[Record]) -> None:
    lines = [",".join(map(str, record)) for record in records]
    driver.send_many(road.source, [(road.vid_of(line), line, road.time_ms_of(line)) for line in lines])


def told(driver: TestDriver) -> list[tuple[int, ...]]:
    return [parsed(row.value) for row in driver.rows(road.answers)]


@pytest.mark.slow
def test_the_known_answers_through_kills_and_from_two_partitions_to_three_and_back() -> None:
    records, _, expected = known()
    driver = TestDriver(road.app, partitions=2, poll_records=3_000)
    fifth = len(records) // 5
    for number in range(5):
        send(driver, records[number * fifth : (number + 1) * fifth if number < 4 else None])
        if number in (1, 3):
            driver.repartition(3 if number == 1 else 2)
        else:
            driver.crash(disk_lost=number == 2)
            driver.restore()
    driver.end_input()
    found = compare(expected.elements(), told(driver))
    assert found.is_exact, found
    assert found.right == sum(times for answer, times in expected.items() if answer[0] != 5)


def test_drawn_traffic_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = Traffic(Load(0.02, minutes=5, seed=3))
    records = list(traffic.records())
    expected = answers(records, traffic.historical)
    tolls = {",".join(map(str, key)): str(toll) for key, toll in traffic.historical.items()}
    monkeypatch.setattr(road, "HISTORY", tolls)
    driver = TestDriver(road.app, partitions=3, poll_records=500)
    send(driver, records)
    driver.end_input()
    found = compare(expected, told(driver))
    assert found.is_exact, found
    assert {answer[0] for answer in expected} == {0, 1, 2, 3, 5}


def test_historical_tolls_are_those_of_the_file() -> None:
    assert "LINEAR_ROAD_TOLLS" in os.environ or road.HISTORY["101,41,0"] == "72"
