"""What waits in a worker: handed out once and in order, whatever is polled, taken, given back or stopped between."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.intake import Intake
from stateflow.runtime.worker.slices import SliceSize, turn_seconds

SOURCES = [TopicPartition("in", number) for number in range(3)]
RECORDS = 200
SETTINGS = WorkerSettings(poll_records_max=60)


class Nobody:
    """A listener to whom it is all the same."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Reading is started by hand."""

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Never happens."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Never happens."""


@pytest.mark.parametrize("seed", range(30))
def test_every_record_is_handed_out_once_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    cluster = MemoryCluster()
    cluster.create([TopicSpec("in", len(SOURCES))])
    writer = cluster.writer()
    for number in range(RECORDS * len(SOURCES)):
        writer.send("in", None, b"%d" % number, partition=number % len(SOURCES))
    writer.commit()
    group = cluster.group_consumer("app", ["in"], Nobody())
    intake = Intake(group, SETTINGS)
    intake.poll(0)
    intake.start(dict.fromkeys(SOURCES, 0))
    done = dict.fromkeys(SOURCES, 0)
    starts_left = 30
    while any(offset < RECORDS for offset in done.values()):
        intake.poll(0)
        assert len(intake) <= SETTINGS.poll_records_max + len(SOURCES)
        for _ in range(rng.randint(1, 4)):
            if intake.first is None:
                break
            batch = intake.take(rng.choice((0.01, 1.0)))
            assert batch.offsets[0] == done[batch.source]
            assert batch.offsets == list(range(batch.offsets[0], batch.offsets[-1] + 1))
            if rng.random() < 0.2:  # some of it, or all, has to wait for timers
                rest = batch.since(batch.offsets[0] + rng.randrange(len(batch)))
                intake.put_back(rest)
                assert intake.first != batch.source, "not in this turn again"
                batch = batch.first(len(batch) - len(rest))
            done[batch.source] += len(batch)
            intake.took(batch, len(batch) * rng.choice((0.0, 0.001, 0.2, 2.0)))
        for source in SOURCES:
            assert intake.position(source) == done[source], "what waits is not read"
        intake.end_turn()
        if starts_left and rng.random() < 0.1:  # its task begins again from its last commit
            starts_left -= 1
            lost = rng.choice(SOURCES)
            intake.stop([lost])
            done[lost] = rng.randint(0, done[lost])
            intake.start({lost: done[lost]})
    assert starts_left == 0
    intake.poll(0)
    assert intake.first is None


def test_slices_double_up_to_their_limit_and_fit_the_time() -> None:
    size = SliceSize(SETTINGS)
    sizes = []
    for _ in range(12):
        sizes.append(size.fitting(0.1))
        size.took(sizes[-1], 0.0)
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512]
    size.took(512, 51.2)
    assert size.fitting(0.1) == 1
    size.took(1, 0.001)
    assert size.fitting(0.1) == 2, "one fast record promises little"


def test_slices_grow_further_where_no_code_of_the_application_can_turn_slow() -> None:
    size = SliceSize(SETTINGS, calls_application=False)
    for _ in range(20):
        size.took(size.fitting(0.1), 0.0)
    assert size.fitting(0.1) == SETTINGS.slice_records_own_max > SETTINGS.slice_records_max
    size.took(size.fitting(0.1), 1.0)
    assert size.fitting(0.1) < SETTINGS.slice_records_own_max / 5, "as the clock says, like all others"


def test_slices_are_never_smaller_than_what_is_worked_on_at_once() -> None:
    size = SliceSize(SETTINGS, records_min=20)
    assert size.fitting(0.01) == 20
    size.took(20, 0.3)
    assert size.fitting(0.1) == 20
    size.took(3, 0.3)  # no more were there; they took as long
    assert size.fitting(0.1) == 20
    size.took(20, 0.02)
    size.took(40, 0.04)
    assert size.fitting(0.1) == 80
    assert SliceSize(SETTINGS, records_min=1_000).fitting(0.1) == 1_000


def test_an_input_that_is_given_back_keeps_what_is_worked_on_at_once() -> None:
    cluster = MemoryCluster()
    cluster.create([TopicSpec("in", 1)])
    writer = cluster.writer()
    for _ in range(RECORDS):
        writer.send("in", None, b"", partition=0)
    writer.commit()
    intake = Intake(cluster.group_consumer("app", ["in"], Nobody()), SETTINGS)
    intake.poll(0)
    intake.start({SOURCES[0]: 0}, records_min=20)
    intake.poll(0)
    batch = intake.take(0.1)
    intake.took(batch, 20 * 10.0)
    intake.end_turn()
    assert (len(batch), len(intake)) == (20, 20)


@pytest.mark.parametrize(("interval", "turn"), [(0.0, 0.01), (0.1, 0.025), (1.0, 0.1), (60.0, 0.1)])
def test_a_turn_is_a_small_part_of_the_commit_interval(interval: float, turn: float) -> None:
    assert turn_seconds(replace(SETTINGS, commit_interval_seconds=interval)) == turn


@pytest.mark.parametrize("seed", range(10))
def test_inputs_of_one_task_are_kept_in_step(seed: int) -> None:
    """One has twice as many records a second as the other, and all of both are there from the beginning."""
    rng, step_ms = random.Random(seed), {"left": 10, "right": 20}
    left, right = inputs = [TopicPartition(topic, 0) for topic in step_ms]
    cluster = MemoryCluster()
    cluster.create([TopicSpec(topic, 1) for topic in step_ms])
    writer = cluster.writer()
    for topic, each_ms in step_ms.items():
        for at_ms in range(each_ms, 20_001, each_ms):
            writer.send(topic, None, b"", partition=0, timestamp_ms=at_ms)
    writer.commit()
    intake = Intake(cluster.group_consumer("app", [*step_ms], Nobody()), SETTINGS)
    intake.poll(0)
    marks_ms, done = dict.fromkeys(inputs, -1), dict.fromkeys(inputs, 0)
    intake.start(dict.fromkeys(inputs, 0), mark_ms=marks_ms.__getitem__)
    slice_ms = SETTINGS.poll_records_max * max(step_ms.values())
    while done[left] < 2_000 or done[right] < 1_000:
        intake.poll(0)
        assert len(intake) <= SETTINGS.poll_records_max
        for _ in range(rng.randint(1, 4)):
            if intake.first is None:
                break
            batch = intake.take(1.0)
            assert batch.offsets[0] == done[batch.source]
            done[batch.source] += len(batch)
            marks_ms[batch.source] = max(batch.timestamps_ms)
            intake.took(batch, len(batch) * 0.0001)
            assert abs(marks_ms[left] - marks_ms[right]) <= slice_ms
        intake.end_turn()


def test_an_input_without_records_holds_no_other_up_and_comes_by_itself_again() -> None:
    cluster, clock = MemoryCluster(), ManualClock(0)
    cluster.create([TopicSpec(topic, 1) for topic in ("left", "right")])
    left, right = TopicPartition("left", 0), TopicPartition("right", 0)
    writer = cluster.writer()
    group = cluster.group_consumer("app", ["left", "right"], Nobody())
    intake = Intake(group, SETTINGS, clock=clock)
    intake.poll(0)
    intake.start({left: 0, right: 0}, mark_ms={left: 5, right: -1}.__getitem__)
    writer.send("left", None, b"1", partition=0)
    writer.commit()
    intake.poll(0)
    assert intake.first == left
    assert intake.take(1.0).values == [b"1"]
    clock.advance(seconds=6)
    intake.poll(0)
    writer.send("right", None, b"2", partition=0)
    writer.commit()
    assert [batch.source for batch in group.poll(10, 0)] == [right], "it is not on demand any more"
