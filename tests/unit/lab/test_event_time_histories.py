"""What histories about event time are judged by: marks, late records, windows, and inputs that may be idle."""

from __future__ import annotations

from stateflow.clock import ManualClock
from stateflow.lab.faults.simulation.applications import Op
from stateflow.lab.faults.simulation.drifting import DriftingProducers
from stateflow.lab.faults.simulation.history import PROFILES, generate
from stateflow.lab.faults.simulation.sending import EVENT_START_MS, Sent
from stateflow.lab.faults.simulation.traffic import GRACE_MS
from stateflow.lab.faults.simulation.traffic_checks import expect
from stateflow.lab.faults.simulation.waking import NO_CAP_MS, Waking
from stateflow.log.base import Committed, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition

INPUTS = [TopicPartition("ops", 0), TopicPartition("ops", 1)]


def sent(partition: int, offset: int, when_ms: int, key: str = "a") -> Sent:
    number = 10 * partition + offset
    return Sent(partition, offset, when_ms, Op(number, key, "add"))


# --- the oracle -----------------------------------------------------------------------------------------------


def test_a_record_is_late_by_the_mark_of_its_own_input() -> None:
    rows = [
        sent(0, 0, 5_000),
        sent(0, 1, 15_000),
        sent(0, 2, 9_999),
        sent(1, 0, 14_999, "b"),
        sent(1, 1, 1, "b"),
    ]
    expected = expect(rows, end_ms=100_000)
    assert expected.late == {2}, "at 15,000 ms the window's end and grace are reached, at 14,999 ms not yet"
    assert expected.windows == {("a", 0): "0", ("a", 10_000): "1", ("b", 10_000): "10", ("b", 0): "11"}


def test_windows_and_timers_are_due_when_event_time_reaches_them() -> None:
    rows = [sent(0, 0, 5_000), sent(0, 1, 15_000)]
    expected = expect(rows, end_ms=35_000)
    assert expected.of(closed=True) == {("a", 0): "0", ("a", 10_000): "1"}
    assert expected.due == {0}
    assert expect(rows, end_ms=24_999).of(closed=False) == {("a", 10_000): "1"}


def test_a_streak_ends_when_nothing_came_for_its_time_to_live() -> None:
    rows = [sent(0, 0, 1_000), sent(0, 1, 20_999), sent(0, 2, 40_999), sent(0, 3, 30_000), sent(0, 4, 50_000)]
    texts = expect(rows, end_ms=60_000).answers
    assert texts[1] == "1 streak 2"
    assert texts[2] == "2 streak 1", "its predecessor expires at 40,999 ms"
    assert texts[3] == "3 streak 2"
    assert texts[4] == "4 streak 3", "a late record does not shorten its life"


# --- inputs that may be idle ----------------------------------------------------------------------------------


def scene() -> tuple[MemoryCluster, ManualClock, Waking]:
    clock = ManualClock(1_700_000_000_000)
    cluster = MemoryCluster(clock)
    cluster.create([TopicSpec("ops", 2)])
    return cluster, clock, Waking(cluster, "app", INPUTS, clock, idle_ms=5_000, grace_ms=GRACE_MS)


def test_nobody_overtakes_an_input_that_may_be_idle_by_more_than_the_grace() -> None:
    cluster, clock, waking = scene()
    clock.advance(ms=4_999)
    assert waking.dormant() == []
    waking.heard(1)
    clock.advance(ms=1)
    assert waking.dormant() == [0]
    assert waking.idled
    waking.wait_for(0, 7, 1_000)
    assert waking.dormant() == [], "it is awaited already"
    assert waking.cap_ms == 1_000 + GRACE_MS - 1
    cluster.commit("app", {INPUTS[0]: Committed(7)})
    waking.heard(0)
    assert waking.dormant() == []
    assert not waking.may_lag(0, 20_000), "offset 7 is not processed yet"
    cluster.commit("app", {INPUTS[0]: Committed(8)})
    assert waking.dormant() == []
    assert waking.cap_ms >= NO_CAP_MS
    assert not waking.may_lag(0, 1_000 + GRACE_MS - 2), "others may have gone so far while it was idle"
    assert waking.may_lag(0, 1_000 + GRACE_MS - 1)


def test_inputs_drift_apart_until_one_may_be_idle() -> None:
    cluster, clock, waking = scene()
    producers = DriftingProducers(cluster, INPUTS, waking, keys=5, silent=(), seed=3)
    for salt in range(40):
        producers.send(salt, 5, "plain")
    assert any(row.timestamp_ms < EVENT_START_MS for row in producers.accepted), "some come late"
    clock.advance(ms=6_000)
    producers.send(41, 5, "plain")
    beats = [row for row in producers.accepted if row.op.key.endswith(".beat")]
    assert [row.partition for row in beats] == [0, 1]
    first_ms = beats[0].timestamp_ms
    for salt in range(50, 90):
        producers.send(salt, 5, "plain")
    assert max(row.timestamp_ms for row in producers.accepted) == first_ms + GRACE_MS - 1


# --- the histories --------------------------------------------------------------------------------------------


def test_histories_have_production_settings() -> None:
    drawn = [generate(seed) for seed in range(2_000)]
    assert {history.profile for history in drawn} == set(PROFILES)
    assert {history.idle_ms for history in drawn} == {500, 5_000}
    assert any(history.sources + history.partitions > 64 for history in drawn)
    verbs = {step.verb for history in drawn for step in history.steps}
    assert {"bulk", "speak", "guarantee", "mode"} <= verbs
    assert {records for history in drawn for records in history.polls} == {1, 2, 3, 10, 500}
