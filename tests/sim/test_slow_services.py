"""A service that is slow, hangs or dies with its worker: commits at their interval, nothing lost and nothing twice.

Time passes only in the service: the calls that are under way together take as long as one.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import TransactionAborted
from stateflow.log.base import TopicSpec
from stateflow.record import TopicPartition
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.worker.worker import Worker
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = pytest.mark.slow

COMMIT_SECONDS = 1.0
TURN_SECONDS = 0.1
LOOP_MS = 5
CONCURRENCY = 10
SOURCES = [TopicPartition("in", 0), TopicPartition("in", 1)]

Ask = Callable[["Asked"], Awaitable[None]]
"""What a call does before it answers."""


class Asked:
    """A call, as the world that it is made in sees it."""

    def __init__(self, world: SlowService, number: int) -> None:
        self.world = world
        self.number = number

    async def takes(self, seconds: float) -> None:
        """Let the clock move on by so much, together with the calls that began at the same time."""
        clock = self.world.clock
        until_seconds = clock.monotonic_seconds() + seconds
        for _ in range(3):  # until all that may begin now has begun
            await asyncio.sleep(0)
        clock.advance(seconds=max(0.0, until_seconds - clock.monotonic_seconds()))


class SlowService(OneMachine):
    """An application that asks for each record, twice: the second stage is behind a re-key step."""

    def __init__(self, ask: Ask, records: int, **options: Any) -> None:
        self.calls_total = 0
        self.under_way = 0
        self.most_under_way = 0
        self.records = records

        async def asked(value: int) -> int:
            self.calls_total += 1
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            try:
                await ask(Asked(self, self.calls_total))
            finally:
                self.under_way -= 1
            return value + 1

        app = sf.App("asking", guarantee="exactly-once")
        stream = app.stream(app.topic("in", value=sf.Integer))
        answered = stream.map_async(asked, concurrency=CONCURRENCY, **options)
        counted = answered.key_by(lambda value: str(value % 5), name="by-rest", key=str, value=int).count(
            name="n"
        )
        counted.to(app.topic("out", key=str, value=int))
        answered.to(app.topic("answers", value=int))
        topics = [TopicSpec(name, 2) for name in ("in", "out", "answers")]
        super().__init__(app.topology(), "exactly-once", topics, partitions=2)
        self.set(commit_interval_seconds=COMMIT_SECONDS, poll_records_max=10_000, slice_records_first=1)
        rows = [(sf.Integer.encode(number), number) for number in range(records)]
        self.feed_topic("in", rows, partitions=2)

    def begun(self) -> Worker:
        """A worker that has opened its tasks and read nothing yet."""
        worker = self.worker(CrashPlan())
        while not worker.tasks:
            worker.step()
        return worker

    def committed(self) -> int:
        """How much of the input is committed."""
        committed = self.cluster.committed("asking", SOURCES, stable=False)
        return sum(position.offset_next for position in committed.values())

    def all_committed(self) -> bool:
        return self.committed() >= self.records

    def finish(self, worker: Worker) -> None:
        """Turn the loop until all is committed, stop, and compare."""
        for _ in range(20_000):
            worker.step()
            self.clock.advance(ms=LOOP_MS)
            if self.all_committed() and is_drained(self.cluster, self.wiring.catalog):
                break
        worker.stop()
        worker.run()
        self.assert_answered_once()

    def assert_answered_once(self) -> None:
        """Each record has one answer, those of a partition in its order, and each was counted once."""
        answers = [(record.partition, sf.Integer.decode(record.value)) for record in self.read("answers")]
        assert sorted(value for _, value in answers) == list(range(1, self.records + 1))
        for written in (0, 1):
            for read in (0, 1):
                mine = [value for partition, value in answers if (partition, value % 2) == (written, read)]
                assert mine == sorted(mine)
        newest = {record.key: sf.Integer.decode(record.value) for record in self.read("out")}
        counts = Counter(str(value % 5).encode() for value in range(1, self.records + 1))
        assert newest == counts
        assert self.under_way == 0


def longest_gap_seconds(world: SlowService, worker: Worker) -> float:
    """Run until all input is committed; the longest time in which none was."""
    return world.longest_gap_seconds(worker, world.committed, world.all_committed, loop_ms=LOOP_MS)


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    gc.collect()  # a killed worker closes nothing
    for thread in threading.enumerate():
        if "map_async" in thread.name:
            thread.join(2)
            assert not thread.is_alive(), thread.name


@pytest.mark.parametrize("seconds", [0.02, 0.06, 0.2, 1.0])
def test_commits_come_at_their_interval_and_calls_are_made_together(seconds: float) -> None:
    world = SlowService(lambda asked: asked.takes(seconds), records=600)
    worker, begun_seconds = world.begun(), world.clock.monotonic_seconds()
    assert longest_gap_seconds(world, worker) <= COMMIT_SECONDS + TURN_SECONDS + seconds + 0.05
    waves = world.records / CONCURRENCY
    assert world.clock.monotonic_seconds() - begun_seconds <= 1.3 * waves * seconds + COMMIT_SECONDS
    assert world.most_under_way == CONCURRENCY
    world.finish(worker)


def test_a_service_that_turns_slow_and_fast_again() -> None:
    world = SlowService(lambda asked: asked.takes(0.5 if 200 < asked.number < 400 else 0.001), records=2_000)
    worker = world.begun()
    slice_seconds = world.settings.slice_records_max / CONCURRENCY * 0.5
    assert longest_gap_seconds(world, worker) <= COMMIT_SECONDS + TURN_SECONDS + slice_seconds
    world.finish(worker)


@pytest.mark.parametrize("number", [1, 2, 57, 399])
def test_killed_while_calls_are_under_way(number: int) -> None:
    async def ask(asked: Asked) -> None:
        await asked.takes(0.05)
        if asked.number == number:
            raise Crash

    world = SlowService(ask, records=400)
    worker = world.begun()
    with pytest.raises(Crash):
        world.finish(worker)
    assert world.under_way == 0
    worker.close()
    world.cluster.end_sessions("asking")
    world.finish(world.begun())


@pytest.mark.parametrize("number", [1, 60, 333])
def test_an_epoch_that_is_lost_in_a_call_is_asked_again(number: int) -> None:
    async def ask(asked: Asked) -> None:
        await asked.takes(0.05)
        if asked.number == number:
            raise TransactionAborted("the broker has aborted it", action="read the input again")

    world = SlowService(ask, records=400, on_error=sf.Skip())
    world.finish(world.begun())
    assert world.calls_total > world.records


def test_a_stop_cancels_calls_that_hang_and_commits_nothing_of_their_batch() -> None:
    cancelled: list[int] = []
    hanging = True

    async def ask(asked: Asked) -> None:
        await asked.takes(0.05)
        if asked.number >= 200 and hanging:
            worker.stop()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(asked.number)

    world = SlowService(ask, records=400, timeout=timedelta(seconds=100))
    worker = world.begun()
    worker.run()
    hanging = False
    assert 1 < len(cancelled) <= CONCURRENCY
    assert world.under_way == 0
    assert 0 < world.committed() < 200
    answers = world.read("answers")
    assert len(answers) == world.committed()
    world.finish(world.begun())


def test_a_stop_waits_for_calls_that_come_back_soon() -> None:
    async def ask(asked: Asked) -> None:
        await asked.takes(0.05)
        if asked.number == 200:
            worker.stop()
            await asyncio.sleep(0.1)

    world = SlowService(ask, records=400)
    worker = world.begun()
    worker.run()
    assert world.committed() == world.calls_total >= 200
    world.finish(world.begun())


@pytest.mark.parametrize("ordered", [True, False])
def test_answers_through_crash_restore_and_repartition(ordered: bool) -> None:
    async def ask(value: int) -> int:
        await asyncio.sleep(0.0001 * (value % 7))
        return value * 2

    app = sf.App("asking")
    numbers, out = app.topic("numbers", key=str, value=int), app.topic("out", key=str, value=int)
    keyed = app.stream(numbers).key_by(lambda value: str(value % 3), name="by-rest", key=str)
    keyed.map_async(ask, ordered=ordered).sum(name="sums").to(out)
    driver = sf.testing.TestDriver(app, partitions=2)
    driver.send(numbers, *range(50))
    driver.crash(disk_lost=True)
    driver.restore()
    driver.send(numbers, *range(50, 100))
    driver.repartition(3)
    driver.send(numbers, *range(100, 150))
    for rest in range(3):
        assert driver.state("sums", key=str(rest)) == 2 * sum(range(rest, 150, 3))
    driver.stop()
