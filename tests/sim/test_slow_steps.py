"""Steps that take long for each record: commits at their interval, stops at once, nothing lost and nothing twice.

All input is there before the worker begins, so one poll brings hours of work. Time passes only in the slow step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace

import pytest

from stateflow.errors import TransactionAborted
from stateflow.log.base import TopicSpec
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Stage, Topology
from stateflow.record import RecordBatch, TopicPartition
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.worker.worker import Worker
from tests.sim.counting import APP, OUTPUT, SOURCE, Rekey, number_of, topology
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = pytest.mark.slow

COMMIT_SECONDS = 1.0
TURN_SECONDS = 0.1 + 0.01
WORDS = [b"word-%d" % (index % 7) for index in range(2_000)]
LOOP_MS = 5
"""What a turn of the loop takes beside its records."""
SOURCES = [TopicPartition(SOURCE, 0), TopicPartition(SOURCE, 1)]

Work = Callable[[int], int]
"""What the n-th record takes, in ms; it may do more than that."""


class SlowWorld(OneMachine):
    """The numbering application, whose first step takes its time."""

    def __init__(self, work: Work, words: list[bytes]) -> None:
        self.words = words
        self.processed_total = 0
        self.slices: list[int] = []

        class SlowRekey(Rekey):
            def process(inner, batch: RecordBatch) -> None:  # noqa: N805 - self is the world
                self.slices.append(len(batch))
                for _ in range(len(batch)):
                    self.processed_total += 1
                    self.clock.advance(ms=work(self.processed_total))
                super().process(batch)

        super().__init__(
            slow(topology(), SlowRekey),
            "exactly-once",
            [TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 2)],
            partitions=2,
        )
        self.set(commit_interval_seconds=COMMIT_SECONDS, poll_records_max=10_000, slice_records_first=1)
        self.feed_topic(SOURCE, [(word, index) for index, word in enumerate(words)], partitions=2)

    def committed(self) -> dict[TopicPartition, int]:
        """What of the input is committed."""
        committed = self.cluster.committed(APP, SOURCES, stable=False)
        return {source: position.offset_next for source, position in committed.items()}

    def begun(self) -> Worker:
        """A worker that has opened its tasks and read nothing yet."""
        worker = self.worker(CrashPlan())
        while not worker.tasks:
            worker.step()
        return worker

    def finish(self, *workers: Worker) -> None:
        """Turn the loops until all is committed, and stop."""
        for _ in range(20_000):
            for worker in workers:
                worker.step()
            self.clock.advance(ms=LOOP_MS)
            if self.all_read() and is_drained(self.cluster, self.wiring.catalog):
                break
        for worker in workers:
            worker.stop()
            worker.run()
        self.assert_numbered_once()

    def all_read(self) -> bool:
        """True once the slow step has committed all its input."""
        return sum(self.committed().values()) >= len(self.words)

    def assert_numbered_once(self) -> None:
        """Each word is numbered 1, 2, 3, … as often as it was sent."""
        numbers: dict[bytes, list[int]] = defaultdict(list)
        for record in self.read(OUTPUT):
            numbers[record.key].append(number_of(record.value))
        expected = {word: list(range(1, count + 1)) for word, count in Counter(self.words).items()}
        assert numbers == expected


def slow(plain: Topology, step: Callable[[StageContext], Rekey]) -> Topology:
    """The topology with another first step."""
    first, *others = plain.stages
    made: Stage = replace(first, build=step)
    return Topology(plain.app, (made, *others))


def longest_gap_seconds(world: SlowWorld, worker: Worker) -> float:
    """Run until all input is committed; the longest time in which none was."""
    return world.longest_gap_seconds(worker, world.committed, world.all_read, loop_ms=LOOP_MS)


@pytest.mark.parametrize("each_ms", [3, 20, 200])
def test_commits_come_at_their_interval(each_ms: int) -> None:
    world = SlowWorld(lambda number: each_ms if number < 10_000 / each_ms else 0, WORDS * 5)
    worker = world.begun()
    assert longest_gap_seconds(world, worker) <= COMMIT_SECONDS + TURN_SECONDS + each_ms / 1000
    world.finish(worker)


def test_a_step_that_turns_slow_holds_the_worker_up_once() -> None:
    world = SlowWorld(lambda number: 0 if number < 5_000 else 20, WORDS * 4)
    worker = world.begun()
    slice_seconds = world.settings.slice_records_max * 0.02
    assert longest_gap_seconds(world, worker) <= COMMIT_SECONDS + TURN_SECONDS + slice_seconds
    assert max(world.slices) == world.settings.slice_records_max
    world.finish(worker)


@pytest.mark.parametrize(("calls_application", "most"), [(True, 16), (False, 64)])
def test_a_stage_without_code_of_the_application_is_given_more_at_a_time(
    monkeypatch: pytest.MonkeyPatch, *, calls_application: bool, most: int
) -> None:
    monkeypatch.setattr(Rekey, "calls_application", calls_application)
    world = SlowWorld(lambda _: 0, WORDS)
    world.set(slice_records_max=16, slice_records_own_max=64)
    world.finish(world.begun())
    assert max(world.slices) == most


def test_a_step_that_turns_fast_again_is_given_more() -> None:
    world = SlowWorld(lambda number: 20 if number < 100 else 0, WORDS)
    world.finish(world.begun())
    assert max(world.slices) > 200


def test_a_stop_is_heard_between_two_slices() -> None:
    stopped_seconds: list[float] = []

    def work(number: int) -> int:
        if number == 500:
            worker.stop()
            stopped_seconds.append(world.clock.monotonic_seconds())
        return 20

    world = SlowWorld(work, WORDS)
    worker = world.begun()
    worker.run()
    assert world.clock.monotonic_seconds() - stopped_seconds[0] <= TURN_SECONDS + 0.02
    assert sum(world.committed().values()) == world.processed_total < 510
    world.finish(world.begun())


@pytest.mark.parametrize("number", [1, 2, 57, 500, 1_999])
def test_killed_between_two_polls(number: int) -> None:
    def work(now: int) -> int:
        if now == number:
            raise Crash
        return 20

    world = SlowWorld(work, WORDS)
    worker = world.begun()
    with pytest.raises(Crash):
        world.finish(worker)
    world.cluster.end_sessions(APP)
    world.finish(world.begun())


@pytest.mark.parametrize("number", [1, 60, 777])
def test_an_epoch_lost_between_two_polls_is_read_again(number: int) -> None:
    def work(now: int) -> int:
        if now == number:
            raise TransactionAborted("the broker has aborted it", action="read the input again")
        return 20

    world = SlowWorld(work, WORDS)
    world.finish(world.begun())
    assert len(WORDS) < world.processed_total < len(WORDS) + 2 * COMMIT_SECONDS / 0.02


def test_a_sibling_gets_its_share_while_work_waits() -> None:
    world = SlowWorld(lambda _: 20, WORDS)
    first = world.begun()
    for _ in range(20):
        first.step()
    begun_seconds = world.clock.monotonic_seconds()
    world.settings = replace(world.settings, member="w1")
    second = world.worker(CrashPlan())
    while not any(task.startswith("rekey") for task in second.tasks):
        first.step()
        second.step()
    assert world.clock.monotonic_seconds() - begun_seconds < 3 * TURN_SECONDS
    world.finish(first, second)


def test_what_takes_long_leaves_room_for_other_inputs() -> None:
    """The slow input is not read on, so a poll brings what other tasks wait for."""
    world = SlowWorld(lambda _: 200, WORDS)
    worker = world.begun()
    for _ in range(200):
        worker.step()
        world.clock.advance(ms=1)
    assert world.processed_total < 250
    assert len(world.read(OUTPUT)) > world.processed_total - 50


def test_an_input_that_waits_is_not_idle() -> None:
    """Silence is what the source says nothing in, not what its worker takes to hear it."""
    world = SlowWorld(lambda _: 200, WORDS[:400])
    world.set(idle_seconds=2.0)
    worker = world.begun()
    fallen: list[tuple[TopicPartition, int]] = []
    for task in worker.tasks.values():
        become_idle, offsets = task.become_idle, task.offsets

        def spy(
            source: TopicPartition,
            become_idle: Callable[[TopicPartition], None] = become_idle,
            offsets: object = offsets,
        ) -> None:
            fallen.append((source, offsets[source]))  # type: ignore[index]
            become_idle(source)

        task.become_idle = spy  # type: ignore[method-assign]
    world.finish(worker)
    assert all(offset >= 200 for source, offset in fallen if source in SOURCES)
