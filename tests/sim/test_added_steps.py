"""A new version adds a step while workers of the old one run: none of them commits input that the step never sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import StoreEntry
from stateflow.errors import CatalogIncompatible, StillRunning
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.record import RecordBatch
from stateflow.runtime.worker.prepare import prepare
from tests.sim.counting import APP, Number, Rekey, topology
from tests.sim.crashing import CrashPlan
from tests.sim.savepoint_world import World as SavepointWorld
from tests.sim.savepoint_world import topology as watched_topology
from tests.sim.test_topic_ownership import at
from tests.sim.test_worker_crashes import WORDS, World, logged_state

NEW = "more"


class RekeyTwice(Rekey):
    """Feeds the old step and the new one."""

    def __init__(self, context: StageContext) -> None:
        super().__init__(context)
        self._both = context

    def process(self, batch: RecordBatch) -> None:
        super().process(batch)
        self._both.rekey_many(NEW, batch.values, batch.values, batch.timestamps_ms)


def with_a_step(old: Topology) -> Topology:
    """The same, and a second step behind the first stage."""
    first, second, *rest = old.stages
    store = replace_store(second)
    more = Stage(NEW, (Input(NEW, first.name),), (store,), (), (), Number)
    return Topology(
        old.app, (replace(first, rekeys=(*first.rekeys, NEW), build=RekeyTwice), second, *rest, more)
    )


def replace_store(stage: Stage) -> StoreEntry:
    return msgspec.structs.replace(stage.stores[0], name=f"{NEW}-total", stage=NEW)


def with_a_state(old: Topology) -> Topology:
    """The same, and a second state in the stage that counts."""
    first, second = old.stages
    store = msgspec.structs.replace(second.stores[0], name="total")
    return Topology(old.app, (first, replace(second, stores=(*second.stores, store))))


@pytest.mark.parametrize("change", [with_a_step, with_a_state])
def test_what_adds_to_a_running_stage_waits_until_the_old_version_has_left(
    change: Callable[[Topology], Topology],
) -> None:
    world = World("exactly-once")
    world.feed(WORDS)
    worker = world.worker(CrashPlan())
    world.run_to_the_end(worker)
    before = ControlTopic(world.cluster, APP).load()
    with pytest.raises(StillRunning, match=r"the code adds .* and 1 worker"):
        prepare(world.cluster, change(topology()), "exactly-once", 3, world.clock)
    assert ControlTopic(world.cluster, APP).load() == before
    prepare(world.cluster, topology(), "exactly-once", 3, world.clock)
    worker.stop()
    worker.run()
    world.clock.advance(ms=60_000)
    prepare(world.cluster, change(topology()), "exactly-once", 3, world.clock)
    with pytest.raises(CatalogIncompatible):
        prepare(world.cluster, topology(), "exactly-once", 3, world.clock)


def test_a_stage_of_its_own_source_may_come_while_others_run() -> None:
    world = World("exactly-once")
    worker = world.worker(CrashPlan())
    worker.step()
    old = topology()
    other = Stage("other", (Input("numbers"),), (), (), (), Rekey)
    wiring = prepare(world.cluster, Topology(APP, (*old.stages, other)), "exactly-once", 3, world.clock)
    assert "other" in wiring.catalog.stages
    worker.stop()
    worker.run()


def test_a_task_of_the_old_version_is_not_opened_once_the_step_is_there() -> None:
    """It prepared before the new version wrote, and joins after."""
    world = World("exactly-once")
    world.feed(WORDS)
    prepare(world.cluster, with_a_step(topology()), "exactly-once", 3, world.clock)
    worker = world.worker(CrashPlan())
    with pytest.raises(CatalogIncompatible, match="step 'more' behind stage 'rekey'"):
        world.run_to_the_end(worker)
    worker.close()
    assert logged_state(world) == {}


def test_a_worker_that_joined_while_the_new_version_began_stops(tmp_path: Path) -> None:
    """It has opened its tasks between the look at who runs, and the write."""
    world = SavepointWorld(tmp_path)
    world.feed([b"to", b"be"])
    world.wiring()

    def turns() -> None:
        for _ in range(20):
            world.turn()

    def join() -> None:
        world.begin("w0")
        turns()

    with at("startup.before_catalog", join):
        prepare(world.cluster, with_a_step(watched_topology()), "exactly-once", 2, world.clock)
    with pytest.raises(CatalogIncompatible, match="has got"):
        turns()
