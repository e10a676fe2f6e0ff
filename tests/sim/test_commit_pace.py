"""Commits before the interval is over: only for outputs that somebody waits for, and in time that is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stateflow.catalog.model import Guarantee
from stateflow.runtime.worker.pace import CommitPace
from tests.sim.asking_world import AskingWorld
from tests.sim.counting import OUTPUT
from tests.sim.test_worker_crashes import WORDS, assert_exactly_once

TURN_MS = 10
INTERVAL_SECONDS = 10
TASKS = 5


class Paced(AskingWorld):
    """The numbering application; a commit takes as long as ``commit_ms`` says, by the clock of the tests."""

    def __init__(self, guarantee: Guarantee = "exactly-once", **settings: Any) -> None:
        super().__init__(self._commit, guarantee)
        self.commit_ms = 0
        self.commits_total = 0
        usual = {"commit_interval_seconds": INTERVAL_SECONDS, "poll_records_max": 1_000}
        self.set(**{**usual, "commit_interval_min_seconds": 0.1, **settings})
        self.worker_under_test = self.begin()
        self.turns_until(lambda: len(self.worker_under_test.tasks) == TASKS)
        self.commits_total = 0

    def _commit(self) -> None:
        self.commits_total += 1
        self.clock.advance(ms=self.commit_ms)

    def turns_until(self, condition: Callable[[], bool]) -> float:
        """Turn the worker's loop, with a pause between two turns; seconds that went by."""
        began_seconds = self.clock.monotonic_seconds()
        while not condition():
            self.worker_under_test.step()
            self.clock.advance(ms=TURN_MS)
            assert self.clock.monotonic_seconds() - began_seconds < 10 * INTERVAL_SECONDS, "it never comes"
        return self.clock.monotonic_seconds() - began_seconds

    def seconds_to_results(self, results: int) -> float:
        """Until so many are to be read by who reads what is committed."""
        return self.turns_until(lambda: len(self.read(OUTPUT)) >= results)

    def seconds_to_a_commit(self) -> float:
        """Until any task commits."""
        return self.turns_until(lambda: self.commits_total > 0)

    def end(self) -> None:
        self.worker_under_test.stop()
        self.worker_under_test.run()


@pytest.mark.parametrize("writers", [0, 1])
def test_a_worker_with_time_to_spare_commits_soon(writers: int) -> None:
    world = Paced(shared_writers=writers)
    world.feed(WORDS)
    assert world.seconds_to_results(len(WORDS)) <= 2 * 0.1 + 10 * TURN_MS / 1000, (
        "two stages, one after the other"
    )
    world.end()
    assert_exactly_once(world)


def test_unless_it_is_set_a_twentieth_of_the_interval_lies_between() -> None:
    world, least_seconds = Paced(commit_interval_min_seconds=None), INTERVAL_SECONDS / 20
    for number, after in enumerate(range(10, len(WORDS) + 1, 10)):
        world.feed(WORDS[after - 10 : after])
        seconds = world.seconds_to_results(after)
        assert seconds <= 2 * least_seconds + 10 * TURN_MS / 1000
        assert number == 0 or seconds >= least_seconds - 10 * TURN_MS / 1000
    world.feed(WORDS[len(WORDS) // 10 * 10 :])
    world.seconds_to_results(len(WORDS))
    world.end()
    assert_exactly_once(world)


def test_commits_that_take_long_come_rarely() -> None:
    """As with many tasks, or on a busy machine: what they take is waited first."""
    world = Paced(shared_writers=1)
    world.commit_ms = 2_000
    for number in range(1, 5):
        world.feed(WORDS[:10])
        world.seconds_to_results(number * 10)
    world.commits_total = 0
    world.feed(WORDS[:10])
    assert world.seconds_to_results(50) >= 2 * 2.0
    assert world.commits_total == 2
    world.end()


def test_a_worker_that_is_behind_its_input_keeps_the_interval() -> None:
    world = Paced(poll_records_max=10)
    records_in_time = 10 * INTERVAL_SECONDS * 1000 // TURN_MS
    world.feed(WORDS * (2 * records_in_time // len(WORDS)))
    assert world.seconds_to_a_commit() >= INTERVAL_SECONDS - 1
    world.end()


@pytest.mark.parametrize(
    ("guarantee", "settings"),
    [
        ("at-least-once", {}),
        ("exactly-once", {"commit_mode": "paranoid"}),
        ("exactly-once", {"commit_interval_min_seconds": INTERVAL_SECONDS}),
    ],
    ids=["outputs are seen at once", "a producer for each transaction", "as it is set"],
)
def test_where_nobody_waits_or_it_is_not_wanted_the_interval_is_kept(
    guarantee: Guarantee, settings: dict[str, Any]
) -> None:
    world = Paced(guarantee, **settings)
    world.feed(WORDS)
    assert world.seconds_to_a_commit() >= INTERVAL_SECONDS - 1
    world.end()


def test_what_a_worker_was_behind_with_is_committed_when_it_has_caught_up() -> None:
    world = Paced("at-least-once", poll_records_max=10)
    behind = WORDS * 10
    world.feed(behind)
    assert world.seconds_to_a_commit() < len(behind) / 10 * TURN_MS / 1000 + 1
    world.turns_until(lambda: not any(task.is_dirty for task in world.worker_under_test.tasks.values()))
    world.commits_total = 0
    began_seconds = world.clock.monotonic_seconds()

    def trickle() -> bool:
        world.feed(WORDS[:1])
        return world.commits_total > 0

    world.turns_until(trickle)
    assert world.clock.monotonic_seconds() - began_seconds > INTERVAL_SECONDS - 2, (
        "it was not behind any more"
    )
    world.end()


def test_a_poll_waits_no_longer_than_until_a_commit_may_come() -> None:
    world = Paced(poll_timeout_seconds=0)
    worker, pace = world.worker_under_test, CommitPace(world.settings, world.clock)
    world.turns_until(lambda: not any(task.is_dirty for task in worker.tasks.values()))
    assert pace.seconds_to_wait(worker._tasks.values()) == float("inf")
    world.feed(WORDS)
    worker.step()
    awaited = [running for running in worker._tasks.values() if running.task.is_awaited]
    since_seconds = world.clock.monotonic_seconds() - min(running.committed_seconds for running in awaited)
    assert pace.seconds_to_wait(awaited) == pytest.approx(max(0.001, 0.1 - since_seconds))
    world.clock.advance(ms=1_000)
    assert pace.seconds_to_wait(awaited) == 0.001, "it is due, but for a moment in which nothing comes"
    world.end()
