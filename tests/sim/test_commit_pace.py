"""Commits before the interval is over: only for outputs that somebody waits for, and in time that is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stateflow.catalog.model import Guarantee
from stateflow.runtime.worker.pace import CommitPace
from tests.sim.asking_world import AskingWorld
from tests.sim.counting import OUTPUT, SOURCE
from tests.sim.test_worker_crashes import WORDS, assert_exactly_once

TURN_MS = 10
INTERVAL_SECONDS = 10
TASKS = 5


class Paced(AskingWorld):
    """The numbering application; a commit takes as long as ``commit_ms`` says, by the clock of the tests."""

    def __init__(self, guarantee: Guarantee = "exactly-once", **settings: Any) -> None:
        super().__init__(self._commit, guarantee)
        self.commit_ms = 0
        self.commit_cpu_seconds = 0.0
        self.commits_total = 0
        usual = {"commit_interval_seconds": INTERVAL_SECONDS, "poll_records_max": 1_000}
        self.set(**{**usual, "commit_interval_min_seconds": 0.1, **settings})
        self.worker_under_test = self.begin()
        self.turns_until(lambda: len(self.worker_under_test.tasks) == TASKS)
        self.commits_total = 0

    def _commit(self) -> None:
        self.commits_total += 1
        self.clock.advance(ms=self.commit_ms)
        self.clock.spend_cpu(self.commit_cpu_seconds)

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


@pytest.mark.parametrize(("least_seconds", "waited_seconds"), [(None, 2.0), (0.1, 0.5)])
def test_commits_that_take_long_come_rarely(least_seconds: float | None, waited_seconds: float) -> None:
    """As with many tasks, or on a busy machine: what they take is waited first; a part of it where one is set."""
    world = Paced(shared_writers=1, commit_interval_min_seconds=least_seconds)
    world.commit_ms = 2_000
    for number in range(1, 5):
        world.feed(WORDS[:10])
        world.seconds_to_results(number * 10)
    world.commits_total = 0
    world.feed(WORDS[:10])
    seconds = world.seconds_to_results(50)
    assert 2 * 2.0 + waited_seconds <= seconds <= 2 * (2.0 + waited_seconds) + 10 * TURN_MS / 1000
    assert world.commits_total == 2
    world.end()


@pytest.mark.parametrize("writers", [0, 1])
@pytest.mark.parametrize(("least_seconds", "share"), [(None, 0.1), (0.1, 0.5)])
def test_early_commits_take_a_share_of_a_core_at_most(
    writers: int, least_seconds: float | None, share: float
) -> None:
    """Many tasks, or commits that cost much, though nothing has to be waited for."""
    world = Paced(shared_writers=writers, commit_interval_min_seconds=least_seconds)
    world.commit_cpu_seconds = 0.02
    world.feed(WORDS[:10])
    world.seconds_to_results(10)
    world.commits_total, began_seconds = 0, world.clock.monotonic_seconds()
    results = 10
    while (passed_seconds := world.clock.monotonic_seconds() - began_seconds) < 20:
        world.feed(WORDS[:10])
        results += 10
        world.seconds_to_results(results)
    of_a_core = 1.5 * world.commits_total * world.commit_cpu_seconds / passed_seconds
    assert of_a_core <= share * 1.1, "a commit takes more than the thread that writes it"
    assert of_a_core >= share / 2, "but they do come early"
    world.end()


def test_what_commits_cost_does_not_stretch_the_interval() -> None:
    world = Paced()
    world.commit_cpu_seconds = 60.0
    for results in (10, 20, 30):
        world.feed(WORDS[:10])
        assert world.seconds_to_results(results) <= 2 * INTERVAL_SECONDS + 1, "two stages, each with its own"
    world.end()


def test_tasks_that_soon_might_commit_early_do_so_with_the_first() -> None:
    world = Paced()
    world.turns_until(lambda: not any(task.is_dirty for task in world.worker_under_test.tasks.values()))
    world.clock.advance(ms=1_000)
    sources = [run for run in world.worker_under_test._tasks.values() if run.primary.topic == SOURCE]
    for younger_seconds, running in zip((0.0, 0.04), sources, strict=True):  # at least 0.1 s, or half of it
        running.committed_seconds = world.clock.monotonic_seconds() - 0.1 + younger_seconds
    before = [running.task.commits_total for running in sources]
    world.feed(WORDS)
    world.turns_until(lambda: sources[0].task.commits_total > before[0])
    assert [running.task.commits_total for running in sources] == [total + 1 for total in before]
    world.end()


class Resting(Paced):
    """Time passes where the worker pauses, and it is noted for how long."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee, **settings: Any) -> None:
        super().__init__(guarantee, poll_timeout_seconds=0.5, **settings)
        self.pauses: list[float] = []
        monkeypatch.setattr(self.clock, "pause", self._pause)

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(ms=round(seconds * 1000))


@pytest.mark.parametrize(
    ("guarantee", "rests"), [("exactly-once", True), ("at-least-once", False)], ids=["unseen", "seen at once"]
)
def test_a_worker_rests_between_turns_while_nobody_could_see_results(
    monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee, *, rests: bool
) -> None:
    world = Resting(monkeypatch, guarantee)
    worker = world.worker_under_test
    worker.step()
    assert not world.pauses, "nothing has come"
    world.feed(WORDS[:10])
    worker.step()
    assert not world.pauses, "what comes after a silence is processed at once"
    worker.step()
    assert bool(world.pauses) == rests
    assert all(0 < seconds <= 0.1 for seconds in world.pauses), "no longer than until commits may come early"
    world.end()


def test_a_rest_is_no_longer_than_the_least_interval_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be waiting for a commit when it begins; what comes meanwhile should not be late for it."""
    world = Resting(monkeypatch, "exactly-once", commit_interval_min_seconds=0.02)
    for _ in range(10):
        world.feed(WORDS[:10])
        world.worker_under_test.step()
    assert world.pauses
    assert max(world.pauses) <= 0.02
    world.end()


def test_a_worker_that_is_behind_its_input_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Resting(monkeypatch, "exactly-once", poll_records_max=10)
    world.feed(WORDS * 2)
    for _ in range(10):
        world.worker_under_test.step()
    assert not world.pauses
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


def test_what_was_behind_is_committed_soon_though_commits_are_dear_but_once_in_an_interval() -> None:
    """Those under load, each interval, have used up the share of CPU that early ones may take."""
    world = Paced("at-least-once", poll_records_max=10)
    world.commit_cpu_seconds = 60.0
    load_seconds = 1.2 * INTERVAL_SECONDS
    stages, records_per_turn = 2, 10
    world.feed(WORDS * int(load_seconds * 1000 / TURN_MS * records_per_turn / stages / len(WORDS)))
    worker = world.worker_under_test
    world.turns_until(lambda: world.commits_total >= TASKS)
    assert world.clock.monotonic_seconds() >= INTERVAL_SECONDS, "it was busy for the interval"
    world.turns_until(lambda: not any(task.is_dirty for task in worker.tasks.values()))
    assert world.clock.monotonic_seconds() < load_seconds + 1, "without waiting for the next one"
    world.commits_total, began_seconds = 0, world.clock.monotonic_seconds()
    world.feed(WORDS * 10)
    world.turns_until(lambda: world.commits_total > 0)
    assert world.clock.monotonic_seconds() - began_seconds > INTERVAL_SECONDS - 3, (
        "this interval had its exception"
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
