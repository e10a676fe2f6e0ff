"""A worker that hung while its application got another partition count: it must end, not go on with the old topics."""

from __future__ import annotations

from collections import Counter

import pytest

from stateflow.catalog.model import Guarantee, RoutingEntry
from stateflow.errors import GenerationUnfinished
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.scale.engine import InProcess
from stateflow.scale.generation import begin, load_catalog
from stateflow.scale.start import start
from tests.sim.counting import APP, topology
from tests.sim.crashing import CrashPlan
from tests.sim.one_machine import STEPS_MAX
from tests.sim.test_worker_crashes import WORDS, World, numbers_by_word


def hung_through_a_repartition(guarantee: Guarantee) -> tuple[World, Worker]:
    world = World(guarantee)
    world.feed(WORDS[:10])
    hung = world.worker(CrashPlan())
    world.run_to_the_end(hung)
    world.cluster.end_sessions(APP)
    start(
        world.cluster, APP, RoutingEntry(kind="modulo", partitions=5), InProcess(world.cluster), world.clock
    )
    world.feed(WORDS[10:])
    return world, hung


def turn_for_long(worker: Worker) -> None:
    for _ in range(STEPS_MAX):
        worker.step()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_it_ends_with_an_error_and_its_input_is_left_to_others(guarantee: Guarantee) -> None:
    world, hung = hung_through_a_repartition(guarantee)
    with pytest.raises(GenerationUnfinished, match="generation 0"):
        turn_for_long(hung)
    hung.close()
    world.cluster.end_sessions(APP)
    world.wiring = prepare(world.cluster, topology(), guarantee, 3, world.clock)
    world.disks.clear()
    world.run_to_the_end(world.worker(CrashPlan()))
    assert {word: len(numbers) for word, numbers in numbers_by_word(world).items()} == Counter(WORDS)


def test_it_ends_while_the_change_is_not_finished() -> None:
    world = World("exactly-once")
    world.feed(WORDS[:10])
    hung = world.worker(CrashPlan())
    world.run_to_the_end(hung)
    world.cluster.end_sessions(APP)

    routing = RoutingEntry(kind="modulo", partitions=5)
    begin(world.cluster, load_catalog(world.cluster, APP), routing, world.clock)
    world.feed(WORDS[10:])
    with pytest.raises(GenerationUnfinished, match="not finished"):
        turn_for_long(hung)
