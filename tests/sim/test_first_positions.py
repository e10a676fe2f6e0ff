"""Committed positions that are gone are told from such as never were: input is not read twice, nor refused at first."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Guarantee
from stateflow.cli import reset
from stateflow.errors import InputPositionLost
from stateflow.failpoints import handled
from stateflow.log.base import Committed
from stateflow.record import TopicPartition
from stateflow.runtime.opening.opening import Opener
from stateflow.runtime.worker.prepare import prepare
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import APP, SOURCE
from tests.sim.crashing import CrashPlan
from tests.sim.test_worker_crashes import WORDS, World, logged_state

PLACES = [TopicPartition(SOURCE, 0), TopicPartition(SOURCE, 1)]


def live(world: World) -> None:
    world.one_life(CrashPlan())
    world.clock.advance(ms=60_000)  # its session is over


def forget_positions(world: World, *places: TopicPartition) -> None:
    """What a tool does that deletes offsets, and the broker with those of a group that was away for long."""
    offsets = world.cluster._broker.group(APP).offsets
    for place in places:
        del offsets[place]


@pytest.mark.parametrize("lost", [PLACES, PLACES[1:]], ids=["all", "one"])
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_position_that_is_gone_is_not_taken_for_a_first_start(
    guarantee: Guarantee, lost: list[TopicPartition]
) -> None:
    world = World(guarantee)
    world.feed(WORDS)
    live(world)
    forget_positions(world, *lost)
    worker = world.worker(CrashPlan())
    with pytest.raises(InputPositionLost, match=r"is gone") as told:
        world.run_to_the_end(worker)
    worker.close()
    assert "--to-earliest" in told.value.action
    assert logged_state(world) == Counter(WORDS), "nothing was read again"


def test_the_choices_that_the_refusal_offers_work() -> None:
    world = World("exactly-once")
    world.feed(WORDS)
    live(world)
    before = world.cluster.committed(APP, PLACES)
    forget_positions(world, *PLACES)
    found = reset.gaps(world.cluster, world.wiring.catalog)
    assert [gap.source for gap in found] == []  # of a catalog from before the first task was opened
    found = reset.gaps(world.cluster, ControlTopic(world.cluster, APP).load())
    assert [gap.source for gap in found] == PLACES
    assert "is gone" in str(found[0])
    world.cluster.commit(APP, {place: Committed(at.offset_next) for place, at in before.items()})
    live(world)
    assert logged_state(world) == Counter(WORDS)

    forget_positions(world, *PLACES)
    reset.accept(world.cluster, ControlTopic(world.cluster, APP).load(), found)
    live(world)
    assert logged_state(world) == {word: 2 * count for word, count in Counter(WORDS).items()}


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize(
    "point", ["open.after_offsets", "open.after_build", "process.before_batch", "commit.before_end"]
)
def test_a_start_that_was_killed_before_its_first_commit_starts_again(point: str) -> None:
    world = World("exactly-once")
    world.feed(WORDS)

    def kill(reached: str) -> None:
        if reached == point:
            raise Killed

    worker = world.worker(CrashPlan())
    with handled(kill), pytest.raises(Killed):
        world.run_to_the_end(worker)
    world.clock.advance(ms=60_000)
    live(world)
    assert logged_state(world) == Counter(WORDS)


def test_killed_at_every_write_of_the_first_opening_it_starts_again() -> None:
    plan = CrashPlan()
    world = World("exactly-once")
    world.feed(WORDS)
    world.one_life(plan)
    for call in range(1, plan.calls, 3):
        world = World("exactly-once")
        world.feed(WORDS)
        world.live_through(CrashPlan(call), power_cut=False)
        assert logged_state(world) == Counter(WORDS), call


def test_a_partition_that_was_added_is_read_from_its_start() -> None:
    world = World("exactly-once")
    world.feed(WORDS)
    live(world)
    entry = ControlTopic(world.cluster, APP).load().stages["rekey"]
    ControlTopic(world.cluster, APP).write([msgspec.structs.replace(entry, begun={SOURCE: (0,)})])
    forget_positions(world, PLACES[1])
    live(world)
    twice = Counter(WORDS[1::2])
    assert logged_state(world) == {word: count + twice[word] for word, count in Counter(WORDS).items()}
    assert ControlTopic(world.cluster, APP).load().stages["rekey"].begun == {SOURCE: (0, 1)}


def test_what_an_earlier_version_has_committed_is_noted() -> None:
    world = World("exactly-once")
    world.feed(WORDS)
    live(world)
    entry = ControlTopic(world.cluster, APP).load().stages["rekey"]
    ControlTopic(world.cluster, APP).write([msgspec.structs.replace(entry, begun={})])
    before = world.cluster.committed(APP, PLACES)
    live(world)
    assert ControlTopic(world.cluster, APP).load().stages["rekey"].begun == {SOURCE: (0, 1)}
    assert world.cluster.committed(APP, PLACES) == before
    assert logged_state(world) == Counter(WORDS)


def test_another_start_keeps_the_note() -> None:
    world = World("exactly-once")
    live(world)
    wiring = prepare(world.cluster, world.wiring.topology, "exactly-once", 3, world.clock)
    assert wiring.catalog.stages["rekey"].begun == {SOURCE: (0, 1)}


def test_a_late_opening_does_not_move_the_position_of_the_one_after_it() -> None:
    """It found no position, hung, and goes on when another has opened the task, noted it and committed."""
    world = World("exactly-once")
    world.feed(WORDS)
    overtaken: list[str] = []

    def overtake(reached: str) -> None:
        if reached == "open.before_first" and not overtaken:
            overtaken.append(reached)
            live(world)

    wiring = world.wiring.task(world.wiring.topology.stage("rekey"), 0)
    opener = Opener(world.cluster, lambda *_: MemoryTaskStores([], world.clock), world.settings, world.clock)
    with handled(overtake):
        late = opener.open(wiring, lambda: False)
    assert overtaken
    committed = world.cluster.committed(APP, PLACES)
    assert late.starts == {PLACES[0]: committed[PLACES[0]].offset_next}
    assert late.starts[PLACES[0]] > 0
    late.abandon()
    live(world)
    assert logged_state(world) == Counter(WORDS)
