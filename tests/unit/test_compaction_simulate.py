"""The key-level simulator, and the streams it is fed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from stateflow.compaction.experiment.calibrate import CalibrationRun, fit
from stateflow.compaction.model.closed_form import Costs, predict
from stateflow.compaction.model.simulate import SimulatedRun, Simulation, SimulationOptions, Work
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.model.workload import Workload
from stateflow.compaction.settings.policy import CleanerSettings, Policy
from stateflow.partitioner import partition_of

QUICK = CleanerSettings(backoff_ms=100)
# segment.ms, ratio → largest log in MB, measured on Kafka 4.3.1 with the default stream (see test_compaction_model).
MEASURED = {(100, 0.33): 8.5, (1000, 0.01): 7.9, (1000, 0.33): 10.3, (1000, 0.66): 17.1}


def simulate(
    policy: Policy, stream: Stream, *, cleaner: CleanerSettings = QUICK, warm: float = 0.0
) -> SimulatedRun:
    simulation = Simulation(stream.partitions, policy, cleaner, Costs(), SimulationOptions(warm_seconds=warm))
    return simulation.run(stream.updates())


@pytest.mark.parametrize("cell", MEASURED)
def test_largest_log_is_within_four_percent_of_what_was_measured(cell: tuple[int, float]) -> None:
    run = simulate(Policy(segment_ms=cell[0], dirty_ratio=cell[1]), Stream(), warm=15)
    assert run.size_max_bytes / 1e6 == pytest.approx(MEASURED[cell], rel=0.04)


def test_the_closed_form_agrees_with_the_simulation() -> None:
    stream = Stream(
        keys=2000, rates=(RateStep(0, 2000),), seconds=20, zipf_exponent=None, value_bytes=(500, 500)
    )
    policy = Policy(segment_bytes=1 << 20, segment_ms=60_000, segment_index_bytes=65_536, dirty_ratio=0.01)
    run = simulate(policy, stream, warm=8)
    record = 500 + 12 + 9 + 61 / 40
    closed = predict(Workload(1, 2000, 2000, record, record), policy, QUICK, Costs())
    assert closed.size_max_bytes == pytest.approx(run.size_max_bytes, rel=0.06)
    assert closed.cleaner_cores == pytest.approx(run.cleaner_cores, rel=0.15)


def test_nothing_is_lost_the_live_keys_are_those_written() -> None:
    stream = Stream(keys=300, partitions=4, rates=(RateStep(0, 1000),), seconds=5)
    run = simulate(Policy(segment_ms=200, dirty_ratio=0.01), stream)
    assert run.live_end == len({update.key for update in stream.updates()})
    assert run.records_end < sum(1 for _ in stream.updates())


def test_an_open_segment_is_never_cleaned() -> None:
    stream = Stream(keys=10, rates=(RateStep(0, 1000),), seconds=5)
    run = simulate(Policy(dirty_ratio=0.0), stream)
    assert run.work.passes == 0
    assert run.records_end == 5000


def test_tombstones_stay_for_delete_retention_and_then_go() -> None:
    stream = Stream(keys=500, rates=(RateStep(0, 500),), seconds=20, state="retain-all", window_seconds=2)
    kept = simulate(Policy(segment_ms=200, dirty_ratio=0.01), stream)
    gone = simulate(Policy(segment_ms=200, dirty_ratio=0.01, delete_retention_ms=1000), stream)
    assert gone.records_end < kept.records_end / 2


def test_min_lag_protects_the_young() -> None:
    stream = Stream(keys=50, rates=(RateStep(0, 1000),), seconds=10)
    eager = simulate(Policy(segment_ms=200, dirty_ratio=0.01), stream, warm=6)
    late = simulate(Policy(segment_ms=200, dirty_ratio=0.01, min_lag_ms=3000), stream, warm=6)
    assert late.records_max - eager.records_max == pytest.approx(3000, rel=0.1)


def test_a_small_index_closes_segments_early() -> None:
    stream = Stream(keys=50, rates=(RateStep(0, 4000),), seconds=5, value_bytes=(1000, 1000))
    run = simulate(Policy(segment_index_bytes=12 * 20, dirty_ratio=0.01), stream)
    assert run.work.rolls > 5


def test_a_new_policy_applies_at_once() -> None:
    stream = Stream(keys=50, rates=(RateStep(0, 1000),), seconds=10)
    simulation = Simulation(1, Policy(segment_ms=100, dirty_ratio=1.0), QUICK, Costs())
    sizes = []
    for update in stream.updates():
        simulation.feed(update)
        if update.seconds > 5 and simulation.policy.dirty_ratio == 1.0:
            sizes.append(simulation.size_bytes)
            simulation.policy = replace(simulation.policy, dirty_ratio=0.01)
    assert simulation.size_bytes < sizes[0] / 5
    assert simulation.appended_total == 10_000


def test_streams_repeat_themselves_and_keep_keys_at_home() -> None:
    stream = Stream(keys=100, partitions=5, rates=(RateStep(0, 300), RateStep(2, 900)), seconds=4, seed=7)
    first, second = list(stream.updates()), list(stream.updates())
    assert first == second
    assert len(first) == 2 * 300 + 2 * 900
    assert all(update.partition == partition_of(update.key, 5) for update in first)
    assert stream.mean_rate() == 600
    counts = Counter(update.key for update in first)
    assert counts.most_common(1)[0][1] > 5 * min(counts.values())


def test_retain_all_deletes_every_element_of_a_closed_window() -> None:
    stream = Stream(keys=20, rates=(RateStep(0, 100),), seconds=6, state="retain-all", window_seconds=2)
    updates = list(stream.updates())
    written = {update.key for update in updates if update.value_bytes is not None and update.seconds < 4}
    deleted = {update.key for update in updates if update.value_bytes is None}
    assert deleted == written


def test_costs_are_recovered_from_runs_made_with_them() -> None:
    true = Costs(
        pass_seconds=0.0037,
        fill_seconds_per_byte=4e-10,
        read_seconds_per_record=4e-7,
        write_seconds_per_record=2e-6,
    )
    per_pass = true.pass_seconds + true.fill_seconds_per_byte * QUICK.dedupe_buffer_bytes
    counts = [(60, 20_000, 12_000), (30, 480_000, 460_000), (30, 400_000, 6000), (20, 120_000, 100_000)]
    runs = [
        CalibrationRun(
            str(passes),
            passes * per_pass + read * true.read_seconds_per_record + written * true.write_seconds_per_record,
            Work(passes=passes, read=read, written=written),
        )
        for passes, read, written in counts
    ]
    found = fit(runs, QUICK)
    assert found.costs.read_seconds_per_record == pytest.approx(4e-7, rel=0.01)
    assert found.costs.write_seconds_per_record == pytest.approx(2e-6, rel=0.01)
    assert found.costs.fill_seconds_per_byte == pytest.approx(4e-10, rel=0.01)
    assert max(abs(error) for error in found.errors.values()) < 0.01
    assert found.costs.uncertainty_factor == pytest.approx(1.15)
