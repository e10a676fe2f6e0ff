"""A worker that is stopped while the group moves on to another generation commits what it has done nevertheless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stateflow import failpoints
from stateflow.lab.faults.simulation.parked import ParkedExecutor
from stateflow.record import TopicPartition
from stateflow.runtime.background import Executors
from stateflow.runtime.worker.worker import Worker
from tests.sim.asking_world import AskingWorld
from tests.sim.counting import SOURCE
from tests.sim.test_worker_crashes import WORDS, assert_exactly_once

TASKS = 5
ENOUGH = 1_000
OUT_OF_THE_GROUP_MS = 301_000


class Closing(AskingWorld):
    """The numbering application, whose workers commit at their end alone."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(lambda: None)
        usual = {"commit_interval_seconds": 3_600, "commit_interval_min_seconds": 3_600, "member": None}
        chosen: dict[str, Any] = {**usual, **settings}
        self.set(**chosen)

    def processed(self, parked: ParkedExecutor | None) -> Worker:
        """A worker that has processed all words in the first stage, and committed nothing of it."""
        worker = self.begin(Executors(parked, parked))

        def turn(turns: int) -> None:
            for _ in range(turns):
                if parked is not None:
                    parked.drive(ENOUGH)
                worker.step()

        turn(20)
        assert len(worker.tasks) == TASKS
        self.feed(WORDS)
        turn(20)
        assert records_of(worker) == len(WORDS)
        return worker

    def close(self, worker: Worker, at: Callable[[int], None]) -> None:
        """Stop the worker; ``at`` is called whenever it has taken a proof of membership, with the number of times."""
        times = 0

        def reached(point: str) -> None:
            nonlocal times
            if point == "commit.after_proof":
                times += 1
                at(times)

        worker.stop()
        with failpoints.handled(reached):
            worker.run()

    def committed_by_partition(self) -> dict[TopicPartition, int]:
        """Of each partition of the source, up to where it is committed."""
        inputs = [TopicPartition(SOURCE, partition) for partition in range(2)]
        found = self.cluster.committed(self.wiring.topology.app, inputs)
        return {place: found[place].offset_next if place in found else 0 for place in inputs}

    def committed_total(self) -> int:
        """Offsets of the source that are committed."""
        return sum(self.committed_by_partition().values())

    def fed_total(self) -> int:
        """Offsets of the source that there are."""
        ranges = self.cluster.ranges(list(self.committed_by_partition()))
        return sum(each.offset_next for each in ranges.values())

    def finish(self, *workers: Worker) -> None:
        """Let these workers do what is left, and stop; the next commits as it goes."""
        for _ in range(60):
            for worker in workers:
                worker.step()
        for worker in workers:
            worker.stop()
            worker.run()
        self.set(commit_interval_seconds=0, commit_interval_min_seconds=0)
        self.run_to_the_end(last := self.begin())
        last.stop()
        last.run()


def records_of(worker: Worker) -> int:
    """How many records the tasks of the first stage have processed."""
    return sum(task.records_total for name, task in worker.tasks.items() if name.startswith("rekey-"))


@pytest.fixture(params=[False, True], ids=["at-once", "slowly"])
def parked(request: pytest.FixtureRequest) -> ParkedExecutor | None:
    """On what tasks are opened and commits written; None for the poll thread itself."""
    return ParkedExecutor() if request.param else None


@pytest.mark.parametrize("shared_writers", [0, 1])
def test_an_epoch_whose_commit_the_group_refuses_is_done_again(
    parked: ParkedExecutor | None, shared_writers: int
) -> None:
    world = Closing(shared_writers=shared_writers)
    worker = world.processed(parked)

    def another_comes_and_goes(times: int) -> None:
        if times == 1:
            world.begin().close()

    world.close(worker, another_comes_and_goes)
    assert world.committed_total() == world.fed_total(), "nothing is left to the next owner"
    world.finish()
    assert_exactly_once(world)


def test_what_the_group_gives_to_another_is_let_go_of_and_the_rest_is_committed(
    parked: ParkedExecutor | None,
) -> None:
    world = Closing(shared_writers=1)  # so both tasks of the first stage are refused
    worker = world.processed(parked)
    others: list[Worker] = []

    def another_comes(times: int) -> None:
        if times == 1:
            others.append(world.begin())

    world.close(worker, another_comes)
    at = world.committed_by_partition()
    assert sorted(offset > 0 for offset in at.values()) == [False, True], "one was kept, one given away"
    world.finish(*others)
    assert_exactly_once(world)


def test_a_close_that_is_refused_again_and_again_ends(parked: ParkedExecutor | None) -> None:
    world = Closing()
    worker = world.processed(parked)
    refused: list[int] = []

    def another_comes_and_goes(times: int) -> None:
        refused.append(times)
        world.begin().close()

    world.close(worker, another_comes_and_goes)
    assert 2 < len(refused) < 50
    assert world.committed_total() == 0
    world.finish()
    assert_exactly_once(world)


def test_a_member_that_was_put_out_does_nothing_again(parked: ParkedExecutor | None) -> None:
    world = Closing()
    worker = world.processed(parked)
    others: list[Worker] = []

    def put_out(times: int) -> None:
        if times == 1:
            world.clock.advance(ms=OUT_OF_THE_GROUP_MS)
            others.append(world.begin())
            for _ in range(20):
                others[0].step()
            assert len(others[0].tasks) == TASKS

    world.close(worker, put_out)
    assert world.committed_total() == 0
    assert len(others[0].tasks) == TASKS, "nobody has fenced them"
    for task in others[0].tasks.values():
        assert task.commits_total <= 1
    world.finish(*others)
    assert_exactly_once(world)


def test_a_member_whose_name_another_process_has_waits_for_nothing(parked: ParkedExecutor | None) -> None:
    """It will never be accepted again: what it has done is its successor's to do."""
    world = Closing(member="w")
    worker = world.processed(parked)
    twins: list[Worker] = []

    def another_takes_the_name(times: int) -> None:
        if times == 1:
            twins.append(world.begin())

    # It is not told that it was replaced: it would be, did it poll once more.
    world.close(worker, another_takes_the_name)
    assert world.committed_total() == 0
    world.finish(*twins)
    assert_exactly_once(world)
