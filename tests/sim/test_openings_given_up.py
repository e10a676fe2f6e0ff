"""Openings that are cancelled or fail on their way: nothing of them stays."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

import stateflow as sf
from stateflow.errors import Interrupted
from stateflow.log.base import TopicSpec
from stateflow.runtime.opening.opening import Opener, OpeningObserver
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.metrics import RestoreFigures
from stateflow.store.memory import MemoryTaskStores
from tests.sim.crashing import CrashPlan
from tests.sim.one_machine import OneMachine

MINUTE_MS = 60_000
BASE_MS = 1_704_067_200_000


async def asked(count: int) -> int:
    return count


def replaying_app() -> sf.App:
    """A stage that replays input, after it has opened a global table and a thread for calls."""
    app = sf.App("minutes", guarantee="exactly-once")
    names = app.global_table(app.topic("names", key=str, value=str), name="names")
    (
        app.stream(app.topic("words", value=sf.String))
        .key_by(str.lower, name="by-word")
        .left_join(names, lambda word, name: name or word, name="named")
        .window(sf.Tumbling(timedelta(minutes=1)), changelog=sf.Eventual())
        .count(name="per-minute")
        .map_async(asked)
        .to(app.topic("counts", key=sf.WindowedKey(sf.String, MINUTE_MS), value=sf.Integer))
    )
    return app


class Replaying(OneMachine):
    """Some words are counted, in windows that are still open."""

    def __init__(self) -> None:
        topics = [TopicSpec(name, 1) for name in ("words", "counts", "names")]
        super().__init__(replaying_app().topology(), "exactly-once", topics, 1)
        self.feed_topic("words", [(b"to be or not".split()[n % 4], BASE_MS + n) for n in range(40)], 1)
        worker = self.worker(CrashPlan())
        self.run_to_the_end(worker)
        worker.close()

    def opener(self, observer: OpeningObserver | None = None) -> Opener:
        def fresh(wiring: TaskWiring, _cancelled: object) -> MemoryTaskStores:
            return MemoryTaskStores([store.name for store in wiring.stage.stores], self.clock)

        return Opener(self.cluster, fresh, self.settings, self.clock, observer)


class CancelledAt:
    """Cancelled at one of the times that somebody looks."""

    def __init__(self, number: int | None) -> None:
        self._number = number
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.looks == self._number


def test_wherever_an_opening_is_cancelled_its_steps_leave_no_thread_and_no_table() -> None:
    world = Replaying()
    wiring = world.wiring.task(world.wiring.topology.stage("by-word"), 0)
    never = CancelledAt(None)
    world.opener().open(wiring, never).abandon()
    assert never.looks > 3, "in the restore, in the global table, in the replay"
    before = set(threading.enumerate())
    for number in range(1, never.looks + 1):
        opener = world.opener()
        with pytest.raises(Interrupted):
            opener.open(wiring, CancelledAt(number))
        assert not set(threading.enumerate()) - before
        assert not opener._global_tables._held


def test_a_restore_that_is_cancelled_is_told_no_more() -> None:
    world = Replaying()
    world.set(restore_records_per_step=1)
    wiring = world.wiring.task(world.wiring.topology.stage("by-word"), 0)
    figures = RestoreFigures()

    def halfway() -> bool:
        return bool(list(figures.samples("minutes")))

    with pytest.raises(Interrupted):
        world.opener(figures).open(wiring, halfway)
    assert not list(figures.samples("minutes"))
