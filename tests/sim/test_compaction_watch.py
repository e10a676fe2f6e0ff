"""The closed loop over a simulated broker and a hand-moved clock: bound held, few changes, safe when blind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.clock import ManualClock
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.control.journal import Journal
from stateflow.compaction.control.watch import Decision, Watcher, WatchOptions
from stateflow.compaction.model.costs import Costs
from stateflow.compaction.model.simulate import Simulation
from stateflow.compaction.model.streams import TOMBSTONE_BYTES, RateStep, Stream
from stateflow.compaction.model.workload import Bursts
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.topic_settings import Policy
from stateflow.errors import BrokerRefused, BrokerUnreachable
from tests.sim.compaction_topic import (
    BUDGET,
    CLEANER,
    RECORD_BYTES,
    RESTORE,
    SimulatedTopic,
    cluster_of,
    measurement,
)

pytestmark = pytest.mark.slow


def watch(
    stream: Stream,
    policy: Policy,
    folder: Path,
    *,
    warm_seconds: float = 5.0,
    options: WatchOptions | None = None,
    breakage: Mapping[float, Exception | None] | None = None,
    known: Measurement | None = None,
    budget: float = BUDGET,
) -> tuple[SimulatedTopic, Watcher]:
    """Feed a stream, looking every half second once warm; ``breakage`` breaks (or mends) the sensors at a time."""
    topic, clock = SimulatedTopic(stream, policy), ManualClock()
    watcher: Watcher | None = None
    next_look, due = warm_seconds, dict(breakage or {})
    for update in stream.updates():
        topic.simulation.feed(update)
        if update.seconds < next_look:
            continue
        clock.advance(seconds=next_look - clock.monotonic_seconds())
        for moment in [moment for moment in due if moment <= next_look]:
            topic.broken = due.pop(moment)
        if watcher is None:
            found = known or measurement(policy, stream.rates[0].updates_per_second, 4000)
            watcher = Watcher(
                cluster_of(topic),
                topic,
                found,
                Objective(budget / RESTORE.records_per_second, replay_seconds_max=5.0),
                Journal("sim", folder),
                costs=Costs(),
                options=options,
                clock=clock,
            )
        watcher.look()
        topic.sizes.append((next_look, topic.simulation.size_bytes))
        next_look += 0.5
    assert watcher is not None
    return topic, watcher


TRIPLED = Stream(
    seconds=60, rates=(RateStep(0, 3000), RateStep(20, 9000), RateStep(40, 3000)), zipf_exponent=0.99
)
RELAXED = Policy(segment_ms=1000, dirty_ratio=0.5)


def test_the_bound_holds_while_the_rate_triples_and_falls_back(tmp_path: Path) -> None:
    topic, watcher = watch(TRIPLED, RELAXED, tmp_path)
    over = [size for _, size in topic.sizes if size > BUDGET * RECORD_BYTES]
    assert len(over) / len(topic.sizes) < 0.01
    assert 1 <= topic.alterations <= 10
    assert all(decision.reason for decision in watcher.decisions)


def test_a_fixed_relaxed_policy_does_not_hold_the_same_bound() -> None:
    simulation, over, count = Simulation(1, RELAXED, CLEANER, Costs()), 0, 0
    for index, update in enumerate(TRIPLED.updates()):
        simulation.feed(update)
        if index % 500 == 0 and update.seconds > 5:
            count += 1
            over += simulation.size_bytes > BUDGET * RECORD_BYTES
    assert over / count > 0.1


def test_windows_that_close_are_no_rise_of_the_rate(tmp_path: Path) -> None:
    stream = Stream(seconds=80, rates=(RateStep(0, 2000),), state="retain-all", zipf_exponent=None)
    policy = Policy(segment_ms=500, segment_index_bytes=65_536, dirty_ratio=0.01, delete_retention_ms=5000)
    known = replace(
        measurement(policy, 4000, 10_000),
        record_bytes=550 + TOMBSTONE_BYTES,
        bursts=Bursts(20_000, 10.0, 20_000, TOMBSTONE_BYTES),
    )
    topic, watcher = watch(
        stream, policy, tmp_path, known=known, budget=2 * known.records_floor, warm_seconds=15.0
    )
    assert topic.alterations <= 2
    assert max(decision.updates_per_second for decision in watcher.decisions) < 1.1 * 4000
    assert not [decision for decision in watcher.decisions if "would not hold" in decision.reason]


def test_one_rollback_goes_back_to_before_the_watch_began(tmp_path: Path) -> None:
    topic, _ = watch(TRIPLED, RELAXED, tmp_path)
    entry = Journal("sim", tmp_path).last_applied("t")
    assert entry is not None
    topic.alter_topic("t", entry.before)
    assert Policy.from_config(topic.topic_config("t")) == RELAXED
    assert len(Journal("sim", tmp_path).entries("t")) == 1


@pytest.mark.parametrize(
    "error", [BrokerUnreachable("gone", action="wait"), BrokerRefused("not allowed", action="ask")]
)
def test_blind_sensors_change_nothing_and_sight_comes_back(tmp_path: Path, error: Exception) -> None:
    _, watcher = watch(TRIPLED, RELAXED, tmp_path, breakage={10.0: error, 15.0: None})
    blind = [decision for decision in watcher.decisions if decision.action == "blind"]
    assert len(blind) == 10
    assert all(not decision.changes for decision in blind)
    assert watcher.decisions[-1].action != "blind"


def corrupt(path: Path) -> None:
    path.write_text("no journal")


def in_the_way(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "said"), [(corrupt, "is not a journal of settings"), (in_the_way, "Is a directory")]
)
def test_a_journal_that_cannot_be_kept_stops_changes_and_not_the_loop(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    path = Journal("sim", tmp_path).path("t")
    path.parent.mkdir(parents=True)
    spoil(path)
    topic, watcher = watch(replace(TRIPLED, seconds=25), RELAXED, tmp_path)
    assert topic.overrides == RELAXED.changes_from(Policy())
    blind = [decision for decision in watcher.decisions if decision.action == "blind"]
    assert blind
    assert all(said in decision.reason for decision in blind)


def test_a_dry_run_says_what_it_would_do_and_does_nothing(tmp_path: Path) -> None:
    topic, watcher = watch(
        replace(TRIPLED, seconds=20), RELAXED, tmp_path, options=WatchOptions(dry_run=True)
    )
    assert topic.alterations == 0
    assert "would change" in {decision.action for decision in watcher.decisions}


def test_changes_that_only_save_wait_for_their_turn(tmp_path: Path) -> None:
    hard = Policy(segment_ms=100, dirty_ratio=0.01)
    options = WatchOptions(save_interval_seconds=30.0)
    _, watcher = watch(replace(TRIPLED, seconds=18), hard, tmp_path, options=options)
    made = [decision for decision in watcher.decisions if decision.action == "change"]
    assert len(made) >= 1
    assert "less CPU" in made[0].reason
    savings = [decision for decision in made if "less CPU" in decision.reason]
    assert len(savings) == 1


def test_a_log_that_is_seldom_cleaned_does_not_seem_to_gain_keys(tmp_path: Path) -> None:
    """The smallest log of five minutes holds updates, too, where a pass comes every hour: settings were changed thrice
    in four seconds, far from the bound.
    """
    stream = Stream(keys=1000, seconds=400, rates=(RateStep(0, 240),), zipf_exponent=None)
    policy = Policy(segment_ms=3_600_000, dirty_ratio=0.5)
    known = measurement(policy, 240.0, 1000)
    options = WatchOptions(saving_min=0.9)
    topic, watcher = watch(stream, policy, tmp_path, options=options, known=known, budget=1_200_000)
    assert watcher.decisions[-1].live_records == pytest.approx(1000, rel=0.05)
    assert topic.alterations == 0


def test_an_idle_topic_is_left_alone(tmp_path: Path) -> None:
    trickle = Stream(seconds=3000, rates=(RateStep(0.0, 0.005),), keys=10)
    clock = ManualClock()
    topic = SimulatedTopic(trickle, RELAXED)
    watcher = Watcher(
        cluster_of(topic),
        topic,
        measurement(RELAXED, 0.0, 10),
        Objective(1.0),
        Journal("sim", tmp_path),
        clock=clock,
    )
    decisions: list[Decision] = []
    for _ in range(5):
        clock.advance(seconds=2)
        decisions.append(watcher.look())
    assert {decision.action for decision in decisions} == {"idle"}
    assert topic.alterations == 0
