"""What waits in a worker: handed out once and in order, whatever is polled, taken, given back or stopped between."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

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
        if rng.random() < 0.1:  # its task begins again from its last commit
            lost = rng.choice(SOURCES)
            intake.stop([lost])
            done[lost] = rng.randint(0, done[lost])
            intake.start({lost: done[lost]})
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
