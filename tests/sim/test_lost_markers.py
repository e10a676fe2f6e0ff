"""Markers that the broker leaves out where there is no leader (KAFKA-20734): the next owner writes them.

The leaders of some partitions are away from one call of a worker on, at which it dies, until the next owner has fenced
it. Whatever ends meanwhile, by a commit or by the fence, ends without a marker there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from stateflow.catalog.model import Guarantee, RoutingEntry
from stateflow.errors import OffsetsPending
from stateflow.log.memory import MemoryCluster
from stateflow.log.transactions import LastTransaction, LeftOpen
from stateflow.record import TopicPartition
from stateflow.runtime.opening.opening import Opener
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import APP, OUTPUT, STORE
from tests.sim.crashing import Crash, CrashPlan
from tests.sim.test_worker_crashes import (
    WORDS,
    World,
    assert_exactly_once,
    assert_nothing_lost,
    local_state,
)

Lost = Iterable[TopicPartition | str]


def changelogs(world: World) -> Lost:
    return [p for task in world.wiring.tasks() for p in task.changelogs.values()]


def outputs(world: World) -> Lost:
    return [TopicPartition(OUTPUT, number) for number in range(3)]


def repartition(world: World) -> Lost:
    (topic,) = {rekey.topic for task in world.wiring.tasks() for rekey in task.rekeys.values()}
    return [TopicPartition(topic, number) for number in range(3)]


def offsets(world: World) -> Lost:
    return [APP]


def everything(world: World) -> Lost:
    return [*changelogs(world), *outputs(world), *repartition(world), *offsets(world)]


class OutagePlan(CrashPlan):
    """Dies at the n-th call, amid an outage that begins with that call."""

    def __init__(self, world: World, lost: Lost, call: int | None = None, *, after: bool = False) -> None:
        super().__init__(call, after=after)
        self._world = world
        self._lost = lost

    def run(self, what: str, call: Any) -> Any:
        if self.calls + 1 == self._call:
            self._world.cluster.lose_leaders(self._lost)
        return super().run(what, call)


class FencingInOutage:
    """The cluster as the next owner sees it: what it fences ends without markers, then the leaders are back."""

    def __init__(self, real: Any, lost: Lost) -> None:
        self._real = real
        self._lost = lost
        self._met: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def writer(self, transactional_id: str | None = None) -> Any:
        return self._fencing(transactional_id, self._real.writer)

    def fence(self, transactional_id: str) -> None:
        self._fencing(transactional_id, self._real.fence)

    def _fencing(self, transactional_id: str | None, call: Callable[[str | None], Any]) -> Any:
        if transactional_id is not None and transactional_id not in self._met:
            self._met.add(transactional_id)
            self._real.lose_leaders(self._lost)
        try:
            return call(transactional_id)
        finally:
            self._real.lose_leaders(())


def live_through(world: World, lost: Lost, call: int | None, *, after: bool) -> OutagePlan:
    world.feed(WORDS)
    plan = OutagePlan(world, lost, call, after=after)
    try:
        worker = world.worker(plan)
        world.run_to_the_end(worker)
        worker.stop()
        worker.run()
    except Crash:
        real = world.cluster
        world.cluster = FencingInOutage(real, lost)  # type: ignore[assignment]
        survivor = world.worker(CrashPlan())
        world.run_to_the_end(survivor)
        survivor.stop()
        survivor.run()
        world.cluster = real
    return plan


EVERY_NTH = 5
"""Of the calls of a life; each kind of outage begins to count at another one."""
WHERE = (changelogs, outputs, repartition, offsets, everything)
CASES = [("exactly-once", where) for where in WHERE] + [("at-least-once", changelogs)]


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("guarantee", "where"), CASES)
def test_an_outage_at_every_write(guarantee: Guarantee, where: Any, after: bool) -> None:
    world = World(guarantee)
    total = live_through(world, where(world), None, after=after).calls
    for call in range(1 + WHERE.index(where), total + 1, EVERY_NTH):
        world = World(guarantee)
        plan = live_through(world, where(world), call, after=after)
        try:
            if guarantee == "exactly-once":
                assert_exactly_once(world)
            else:
                assert_nothing_lost(world)
        except AssertionError as error:
            raise AssertionError(f"died {plan.died_at}, call {call} of {total}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("where", WHERE)
def test_another_number_of_partitions_after_an_outage(where: Any, after: bool) -> None:
    """Without a worker in between: it is the change that writes the markers, and reads what they decide."""
    world = World("exactly-once")
    total = live_through(world, where(world), None, after=after).calls
    for call in range(1 + WHERE.index(where), total + 1, 3 * EVERY_NTH):
        world = World("exactly-once")
        lost = where(world)
        plan = OutagePlan(world, lost, call, after=after)
        world.feed(WORDS)
        with pytest.raises(Crash):
            world.one_life(plan)
        world.cluster.end_sessions(APP)
        fencing = cast(MemoryCluster, FencingInOutage(world.cluster, lost))
        start(fencing, APP, RoutingEntry(kind="modulo", partitions=5), InProcess(world.cluster), world.clock)
        world.begin_anew(partitions=5)
        world.one_life(CrashPlan())
        try:
            assert_exactly_once(world)
        except AssertionError as error:
            raise AssertionError(f"died {plan.died_at}, call {call} of {total}: {error}") from error


def commit_without_markers(world: World) -> None:
    """Have a worker number all words. Of the last ones' commit every partition lacks its marker; all lead again."""
    half = len(WORDS) // 2
    world.feed_second_stage(WORDS[:half])
    worker = world.worker(CrashPlan())
    world.run_to_the_end(worker)
    world.cluster.lose_leaders([*changelogs(world), *outputs(world), *offsets(world)])
    world.feed_second_stage(WORDS[half:])
    for _ in range(len(WORDS)):
        worker.step()
    world.cluster.lose_leaders(())


def test_a_commit_that_was_applied_and_then_undone_is_not_gone_on_from() -> None:
    """Its marker was lost, and an abort of the next transaction decided: the disk alone has what it changed."""
    world = World("exactly-once")
    tasks = [task for task in world.wiring.tasks() if task.changelogs]
    commit_without_markers(world)
    assert local_state(world) == Counter(WORDS), "it was applied"
    for task in tasks:
        next_one = world.cluster.writer(task.transactional_id)
        next_one.begin()
        for changelog in task.changelogs.values():
            next_one.send(changelog.topic, b"key", b"given up", partition=changelog.partition)
        next_one.abort()
    survivor = world.worker(CrashPlan())
    world.run_to_the_end(survivor)
    survivor.stop()
    survivor.run()
    assert_exactly_once(world)


@pytest.mark.parametrize("is_moved", [False, True], ids=["opened", "moved"])
def test_an_output_that_the_code_no_longer_has_gets_its_marker(is_moved: bool) -> None:
    world = World("exactly-once")
    lost = TopicPartition(OUTPUT, 1)
    task = world.wiring.task(world.wiring.topology.stage("number"), 0)
    predecessor = world.cluster.writer(task.transactional_id)
    predecessor.begin()
    predecessor.send(OUTPUT, b"to", b"be", partition=lost.partition)
    world.cluster.lose_leaders([lost])
    predecessor.abort()
    world.cluster.lose_leaders(())
    rekey, number = world.wiring.topology.stages
    world.wiring.topology = replace(world.wiring.topology, stages=(rekey, replace(number, outputs=())))
    world.begin_anew(partitions=3)
    if is_moved:
        routing = RoutingEntry(kind="modulo", partitions=5)
        start(world.cluster, APP, routing, InProcess(world.cluster), world.clock)
    else:
        world.one_life(CrashPlan())
    assert world.cluster.ranges([lost]) == world.cluster.ranges([lost], stable=False)


def test_offsets_that_lack_a_marker_are_waited_for_once() -> None:
    """A broker lets whoever asks for them wait; the task is opened at once when it is known that nobody ends that."""
    world = World("exactly-once")
    commit_without_markers(world)
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    asking = Asking(world.cluster)
    opener = Opener(
        cast(MemoryCluster, asking), lambda *_: MemoryTaskStores([STORE]), world.settings, world.clock
    )
    opener.open(wiring, lambda: False).task.abandon()
    assert asking.held == 1
    assert None not in asking.patience, "nobody fenced is waited for as long as for a broker"


class Asking:
    """A cluster that counts how often offsets were asked for that a transaction holds."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.held = 0
        self.patience: list[float | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def committed(self, *args: Any, pending_seconds: float | None = None, **how: Any) -> Any:
        self.patience.append(pending_seconds)
        try:
            return self._real.committed(*args, pending_seconds=pending_seconds, **how)
        except OffsetsPending:
            self.held += 1
            raise


def test_a_changelog_that_another_producer_holds_is_waited_for() -> None:
    """What stands behind an open transaction cannot be read: a task that began with less would forget state."""
    world = World("exactly-once")
    (held,) = [p for p in changelogs(world) if isinstance(p, TopicPartition) and p.partition == 0]
    stranger = world.cluster.writer("stranger")
    stranger.begin()
    stranger.send(held.topic, b"key", b"value", partition=0)
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    opener = Opener(world.cluster, lambda *_: MemoryTaskStores([STORE]), world.settings, world.clock)
    with pytest.raises(OffsetsPending, match="hides the end of"):
        opener.open(wiring, lambda: False)
    stranger.abort()
    opener.open(wiring, lambda: False).task.abandon()


def test_what_an_unreadable_topic_holds_gets_its_marker_all_the_same() -> None:
    """Where one may write and not read nobody tells who has something open; a marker there is harmless."""
    world = World("exactly-once")
    wiring = world.wiring.task(world.wiring.topology.stage("number"), 0)
    predecessor = world.cluster.writer(wiring.transactional_id)
    predecessor.begin()
    predecessor.send(OUTPUT, b"to", b"be", partition=1)
    world.cluster.lose_leaders([TopicPartition(OUTPUT, 1)])
    predecessor.abort()
    world.cluster.lose_leaders(())
    opener = Opener(
        Unreadable(world.cluster), lambda *_: MemoryTaskStores([STORE]), world.settings, world.clock
    )
    opener.open(wiring, lambda: False).task.abandon()
    (output,) = [TopicPartition(OUTPUT, 1)]
    assert world.cluster.ranges([output]) == world.cluster.ranges([output], stable=False)
    assert not [record for record in world.read(OUTPUT) if record.value == b"be"]


class Unreadable:
    """A cluster that does not tell who has transactions open."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.transactions = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def last(self, transactional_id: str) -> LastTransaction | None:
        return cast("LastTransaction | None", self._real.transactions.last(transactional_id))

    def left_open(self, _ids: Iterable[str], partitions: Iterable[TopicPartition]) -> LeftOpen:
        return LeftOpen({}, frozenset(partitions))

    def end(self, *args: Any, **how: Any) -> None:
        self._real.transactions.end(*args, **how)
