"""The real worker on a memory log, killed at every single write: nothing lost, nothing twice.

Each case kills the worker at the n-th call that changes the log or a store, starts a successor on what was left, and
compares with an oracle. The n that are tried cover every write of the run, so there is no step that is not killed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from stateflow.catalog.model import Guarantee
from stateflow.changelog.format import is_reserved
from stateflow.log.base import TopicSpec
from tests.sim.counting import OUTPUT, SOURCE, STORE, number_of, topology
from tests.sim.crashing import CrashPlan
from tests.sim.one_machine import OneMachine

pytestmark = pytest.mark.slow

WORDS = b"to be or not to be that is the question to be or".split() * 3


class World(OneMachine):
    """The numbering application on one machine."""

    def __init__(self, guarantee: Guarantee) -> None:
        super().__init__(topology(), guarantee, [TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 3)], partitions=3)

    def feed_second_stage(self, words: list[bytes], partition: int = 0) -> None:
        """Send words as the stage before would have."""
        topic = self.wiring.primary_topic(self.wiring.topology.stage("number"))
        writer = self.cluster.writer()
        for word in words:
            writer.send(topic, word, word, partition=partition, timestamp_ms=1)
        writer.commit()
        writer.close()

    def feed(self, words: list[bytes]) -> None:
        self.feed_topic(SOURCE, [(word, index) for index, word in enumerate(words)], partitions=2)


def numbers_by_word(world: World) -> dict[bytes, list[int]]:
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for record in world.read(OUTPUT):
        numbers[record.key].append(number_of(record.value))
    return numbers


def logged_state(world: World) -> dict[bytes, int]:
    changelog = world.wiring.task(world.wiring.topology.stage("number"), 0).changelogs[STORE].topic
    records = [record for record in world.read(changelog) if not is_reserved(record.key)]
    newest = {record.key: record.value for record in records}
    return {key: number_of(value) for key, value in newest.items() if value is not None}


def local_state(world: World) -> dict[bytes, int]:
    return {
        key: number_of(value)
        for task, disk in world.disks.items()
        if task.startswith("number-")
        for key, value in disk.reader(STORE).scan()
    }


def assert_exactly_once(world: World) -> None:
    expected = Counter(WORDS)
    assert {word: len(numbers) for word, numbers in numbers_by_word(world).items()} == expected
    for word, numbers in numbers_by_word(world).items():
        assert numbers == list(range(1, expected[word] + 1)), word
    assert logged_state(world) == expected
    assert local_state(world) == expected


def assert_nothing_lost(world: World) -> None:
    expected = Counter(WORDS)
    state = logged_state(world)
    assert all(state[word] >= count for word, count in expected.items())
    assert local_state(world) == state


def live_and_die(guarantee: Guarantee, plan: CrashPlan, *, power_cut: bool) -> World:
    world = World(guarantee)
    world.feed(WORDS)
    world.live_through(plan, power_cut=power_cut)
    return world


def calls_of_a_whole_life(guarantee: Guarantee) -> int:
    plan = CrashPlan()
    live_and_die(guarantee, plan, power_cut=False)
    return plan.calls


CASES: list[tuple[Guarantee, Callable[[World], None]]] = [
    ("exactly-once", assert_exactly_once),
    ("at-least-once", assert_nothing_lost),
]


@pytest.mark.parametrize(("guarantee", "check"), CASES, ids=[name for name, _ in CASES])
def test_without_a_crash(guarantee: Guarantee, check: Callable[[World], None]) -> None:
    world = live_and_die(guarantee, CrashPlan(), power_cut=False)
    check(world)
    assert_exactly_once(world)


@pytest.mark.parametrize("power_cut", [False, True], ids=["process", "machine"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("guarantee", "check"), CASES, ids=[name for name, _ in CASES])
def test_killed_at_every_write(
    guarantee: Guarantee, check: Callable[[World], None], after: bool, power_cut: bool
) -> None:
    total = calls_of_a_whole_life(guarantee)
    assert total > 50, "a run must consist of many writes, or this test shows little"
    for call in range(1, total + 1):
        plan = CrashPlan(call, after=after)
        world = live_and_die(guarantee, plan, power_cut=power_cut)
        try:
            check(world)
        except AssertionError as error:
            raise AssertionError(f"killed {plan.died_at}, call {call} of {total}: {error}") from error
