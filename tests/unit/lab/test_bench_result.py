"""What `stateflow bench` makes of the runs: ratios of pairs, medians, and whether everybody computed the same."""

from __future__ import annotations

import pytest

from stateflow.lab.bench.latency import LatencyLoad
from stateflow.lab.bench.latency_study import Start, percentiles
from stateflow.lab.bench.result import OURS, Ran, bytes_digest, summary
from stateflow.lab.bench.workload import Workload, number_in, of, other_key_in


def ran(seconds: float, cpu_seconds: float, result: str = "1:a") -> Ran:
    return Ran(1_000_000, seconds, cpu_seconds, result, "python")


def test_ratios_are_taken_pair_by_pair_and_say_how_much_faster_this_project_is() -> None:
    slow_minute = {OURS: ran(20.0, 8.0), "other": ran(50.0, 24.0)}
    rounds = [
        {OURS: ran(10.0, 8.0), "other": ran(20.0, 16.0)},
        slow_minute,
        {OURS: ran(10.0, 4.0), "other": ran(30.0, 16.0)},
    ]
    found = summary(rounds)
    assert found["ratios"]["other"] == {"median": 2.5, "spread": [2.0, 3.0]}
    assert found["cpu_ratios"]["other"] == {"median": 3.0, "spread": [2.0, 4.0]}
    assert found["cpu_seconds_per_million"] == {OURS: 8.0, "other": 16.0}
    assert found["sides"][OURS]["records_per_second_spread"] == [50_000, 100_000]
    assert found["same_result"] is True
    assert (found["runs"], found["mode"]) == (3, "python")


def test_one_different_answer_in_one_round_is_told() -> None:
    same = {OURS: ran(1.0, 1.0), "other": ran(1.0, 1.0)}
    assert summary([same, {OURS: ran(1.0, 1.0), "other": ran(1.0, 1.0, "1:b")}])["same_result"] is False


def test_a_digest_depends_on_every_entry_and_on_no_order() -> None:
    entries = {b"a": b"1", b"b": b"2"}
    assert bytes_digest(entries) == bytes_digest(dict(reversed(entries.items())))
    others: tuple[dict[bytes, bytes], ...] = ({b"a": b"1", b"b": b"3"}, {b"a": b"1"}, {})
    assert len({bytes_digest(each) for each in (entries, *others)}) == 4


def test_a_restore_has_five_records_of_each_key_where_nothing_else_is_said() -> None:
    assert of("restore", 1_000, None).keys == 200
    assert of("restore", 1_000, 10).keys == 10
    assert of("count", 1_000, None).keys == 100_000
    assert of("restore", 1_000, None).timed_records == 1_000
    assert of("count", 1_000, None).timed_records == 800


def test_sides_are_told_the_whole_workload() -> None:
    load = of("rekey", 5_000, 70, guarantee="at-least-once", threads=3)
    assert Workload.decode(load.encode()) == load


@pytest.mark.parametrize("number", [0, 999, -1])
def test_where_key_and_number_stand_in_a_value(number: int) -> None:
    value = b"%016d" % 42 + number.to_bytes(8, "big", signed=True) + bytes(76)
    assert (other_key_in(value), number_in(value)) == (b"%016d" % 42, number)


def test_percentiles_are_latencies_that_so_many_results_do_not_exceed() -> None:
    found = percentiles([number / 1000 for number in range(100, 0, -1)])
    assert found == {"p50_ms": 50.0, "p95_ms": 95.0, "p99_ms": 99.0}
    assert set(percentiles([0.25]).values()) == {250.0}


def test_sides_of_a_latency_are_told_the_whole_load() -> None:
    load = LatencyLoad(rate=5, rekeyed=True, commit_seconds=0.5)
    assert LatencyLoad.decode(load.encode()) == load


def test_a_start_is_over_when_every_partition_that_gets_records_had_a_timely_result() -> None:
    start = Start(LatencyLoad(keys=50, partitions=2))
    assert not start.is_over({0: [98_500_000_000], 1: [3_000_000_000]}, now_seconds=100.0)
    assert not start.is_over({1: []}, now_seconds=100.1)
    assert start.is_over({1: [3_000_000_000, 99_900_000_000]}, now_seconds=100.2)
    alone = Start(LatencyLoad(keys=1, partitions=8))
    assert sum(alone.is_over({number: [100_000_000_000]}, 100.0) for number in range(8)) >= 1
