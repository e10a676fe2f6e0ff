"""Linear Road's oracle against answers that others computed, the generator, the comparison, the figures."""

from __future__ import annotations

import lzma
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.lab.linear_road.answers import Comparison, compare, parsed, percentile, time_of
from stateflow.lab.linear_road.generator import Load, Record, Traffic
from stateflow.lab.linear_road.oracle import answers
from stateflow.lab.linear_road.page import road_page
from stateflow.lab.linear_road.study import (
    KILL_AND_RESCALE,
    Drive,
    DriveResult,
    full_drives,
    quick_drives,
    summary,
)

DATA = Path(__file__).parents[3] / "examples" / "linear_road" / "data"
SMALL = Load(0.1, minutes=6, seed=7)


def integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def known() -> tuple[list[Record], dict[tuple[int, int, int], int], Counter[tuple[int, ...]]]:
    """Input, historical tolls and right answers of an independent validator."""
    with lzma.open(DATA / "lr.dat.xz", "rt") as file:
        records = [integers(line) for line in file]
    with lzma.open(DATA / "lr.expected.csv.xz", "rt") as file:
        expected = Counter(integers(line) for line in file)
    tolls = {}
    for line in (DATA / "tolls.dat").read_text().split():
        vid, day, xway, toll = integers(line)
        tolls[vid, day, xway] = toll
    return records, tolls, expected


@pytest.mark.parametrize("order", ["as they are", "by vid", "by vid backwards"])
def test_the_oracle_gives_the_known_answers(order: str) -> None:
    records, tolls, expected = known()
    if order != "as they are":  # who is first within a second must not matter
        sign = 1 if order == "by vid" else -1
        records.sort(key=lambda record: (record[1], sign * record[2]))
    assert Counter(answers(records, tolls)) == expected


def test_traffic_is_repeatable_rising_and_gives_every_rule_something_to_do() -> None:
    traffic = Traffic(SMALL)
    records = list(traffic.records())
    assert records == list(Traffic(SMALL).records())
    assert records != list(Traffic(replace(SMALL, seed=8)).records())
    assert [record[1] for record in records] == sorted(record[1] for record in records)
    per_minute = Counter(record[1] // 60 for record in records if record[0] == 0)
    assert [per_minute[minute] for minute in range(6)] == sorted(per_minute.values())
    found = answers(records, traffic.historical)
    kinds = Counter(answer[0] for answer in found)
    assert all(kinds[kind] for kind in (0, 1, 2, 3, 5))
    assert any(answer[0] == 0 and answer[4] for answer in found)
    assert any(answer[0] == 2 and answer[4] for answer in found)
    assert {record[5] for record in records if record[0] == 0} == {0, 1, 2, 3, 4}
    assert len({record[2] for record in records if record[0] == 0 and record[5] == 0}) < sum(
        record[0] == 0 and record[5] == 0 for record in records
    ), "some cars come back"


def test_several_expressways() -> None:
    records = list(Traffic(Load(1.1, minutes=1)).records())
    per_xway = Counter(record[4] for record in records if record[0] == 0)
    assert set(per_xway) == {0, 1}
    assert per_xway[0] > 5 * per_xway[1] > 0


def test_lines_are_answers_without_the_time_of_emission() -> None:
    assert parsed("0,7,60,61,33,8") == (0, 7, 60, 33, 8)
    assert parsed("1,60,61,0,5,1,7") == (1, 60, 0, 5, 1, 7)
    assert parsed("2,60,61,60,4,9") == (2, 60, 60, 4, 9)
    assert [time_of(parsed(line)) for line in ("0,7,60,61,33,8", "3,60,61,4,9")] == [60, 60]


def test_comparing_finds_what_is_missing_wrong_or_there_twice() -> None:
    right = [(0, 7, 60, 33, 8), (2, 60, 60, 4, 9), (5, 60, 30, 4, 3), (3, 60, 4, 9)]
    assert compare(right, [right[0], right[1], right[3]]) == Comparison(3, 0, 0)
    assert compare(right, [right[0], right[2], right[3]]).is_exact, "a balance without the newest charge"
    assert compare(right, right).wrong == 1, "one of the two balances, not both"
    assert compare(right, [right[0], right[0], right[1]]).examples == (
        "missing (3, 60, 4, 9)",
        "wrong (0, 7, 60, 33, 8)",
    )


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert [percentile(range(1, 101), percent) for percent in (50, 99, 100)] == [50, 99, 100]
    assert percentile([], 99) == 0.0
    assert percentile([3.0], 50) == 3.0


def result(drive: Drive, slowest: float = 1.0, missing: int = 0) -> DriveResult:
    latencies = ((0.0, 0.5), (1.0, slowest))
    return DriveResult(drive, 1_000, Comparison(2, missing, 0), latencies, 0.05, 0.0)


def test_the_rating_is_the_largest_load_that_was_answered_in_time() -> None:
    drives = [Drive(Load(share), pace=2) for share in (0.25, 0.5, 1, 2)]
    found = [
        result(drives[0]),
        result(drives[1]),
        result(drives[2], missing=1),
        result(drives[3], slowest=5.1),
    ]
    found += [
        result(Drive(Load(8), pace=math.inf)),
        result(Drive(Load(9), disturbances=KILL_AND_RESCALE), slowest=30),
    ]
    body = summary(found, "quick", 1)
    assert (body["rating"], body["missing"], body["cpu_seconds_per_million"]) == (1.0, 1, 50.0)
    assert summary([found[3], found[4]], "quick", 1)["rating"] == 0
    assert "2 expressways" in road_page(found)
    assert "Rating: " in road_page(found)
    assert found[5].share_in_time == 0.5


@pytest.mark.parametrize("drives", [quick_drives(1), full_drives(1)])
def test_each_study_has_rated_runs_one_at_once_and_one_disturbed(drives: list[Drive]) -> None:
    assert sum(drive.is_rated for drive in drives) == len(drives) - 2 >= 3
    assert sum(drive.is_disturbed for drive in drives) == 1
