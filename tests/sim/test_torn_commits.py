"""Commits torn by a late EndTxn at every single write: the state stays right.

A late EndTxn commits what the task's transaction holds at that moment. Only the stage that keeps state is torn: its
commit records protect state, and what it puts out may be seen twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stateflow.lab.faults.simulation.tearing import TornWriter
from stateflow.log.memory.writer import MemoryWriter
from stateflow.record import TopicPartition
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.test_worker_crashes import WORDS, World, local_state, logged_state, numbers_by_word

pytestmark = pytest.mark.slow

NO_SURVIVOR_NEEDED = 10_000


class Tear:
    """Lets one late EndTxn arrive before the n-th call of a torn writer, and the process die some calls later."""

    def __init__(self, call: int, dies_after_calls: int) -> None:
        self.call = call
        self.dies_at = call + dies_after_calls
        self.calls = 0
        self.could_tear: list[int] = []
        """Calls at which a transaction with something in it was open."""
        self.cut: set[TopicPartition] = set()
        self.happened = False

    def before_call(self, writer: MemoryWriter, touched: set[TopicPartition]) -> None:
        self.calls += 1
        if touched:
            self.could_tear.append(self.calls)
        if self.calls == self.call and touched:
            writer.late_end_txn()
            self.cut = set(touched)
            self.happened = True
        if self.happened and self.calls >= self.dies_at:
            raise Crash(f"call {self.calls}")


class TornCluster:
    """The memory cluster, with a torn network before the stage that keeps state."""

    def __init__(self, real: Any, tear: Tear) -> None:
        self._real = real
        self._tear = tear

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def writer(self, transactional_id: str | None = None) -> Any:
        real = self._real.writer(transactional_id)
        return TornWriter(real, self._tear) if transactional_id and "-number-" in transactional_id else real


def live_torn(tear: Tear, *, store_lost: bool) -> World:
    world = World("exactly-once")
    world.feed(WORDS)
    real = world.cluster
    try:
        world.cluster = TornCluster(real, tear)  # type: ignore[assignment]
        world.run_to_the_end(world.worker(CrashPlan()))
    except Crash:
        world.cluster = real
        if store_lost:
            world.disks.clear()
        survivor = world.worker(CrashPlan())
        world.run_to_the_end(survivor)
        survivor.stop()
        survivor.run()
    world.cluster = real
    return world


def expected_state() -> dict[bytes, int]:
    return {word: WORDS.count(word) for word in WORDS}


def assert_state_is_right(world: World) -> None:
    assert logged_state(world) == expected_state()
    assert local_state(world) == expected_state()
    for word, numbers in numbers_by_word(world).items():
        assert sorted(set(numbers)) == list(range(1, expected_state()[word] + 1)), word


def every_tear(dies_after_calls: int, check: Callable[[Tear, World], None], *, store_lost: bool) -> int:
    """Tear before every call of a life that meets an open transaction; how many these are. At others nothing happens:
    they are one life, without a tear.
    """
    whole = Tear(0, NO_SURVIVOR_NEEDED)
    check(whole, live_torn(whole, store_lost=store_lost))
    for call in whole.could_tear:
        tear = Tear(call, dies_after_calls)
        world = live_torn(tear, store_lost=store_lost)
        assert tear.happened, f"call {call} is another one this time"
        check(tear, world)
    return len(whole.could_tear)


@pytest.mark.parametrize("store_lost", [False, True], ids=["store-kept", "store-lost"])
@pytest.mark.parametrize("dies_after_calls", [0, 1, 2, 4, NO_SURVIVOR_NEEDED])
def test_torn_at_every_write(dies_after_calls: int, store_lost: bool) -> None:
    def check(tear: Tear, world: World) -> None:
        try:
            assert_state_is_right(world)
        except AssertionError as error:
            raise AssertionError(f"torn before call {tear.call}, died at {tear.dies_at}: {error}") from error

    torn = every_tear(dies_after_calls, check, store_lost=store_lost)
    assert torn > 20, "most calls must fall into an open transaction, or this test shows little"
