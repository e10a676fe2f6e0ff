"""Two commands that change the generation at the same moment: one goes through, the other is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.savepoints import Savepoint
from stateflow.clock import ManualClock
from stateflow.errors import ConfigError, GenerationUnfinished, PartitionCountChanged
from stateflow.failpoints import handled
from stateflow.log.base import Cluster, TopicSpec, Writer
from stateflow.log.memory import MemoryCluster
from stateflow.routing import RoutingTable
from stateflow.runtime.worker.prepare import expected_catalog
from stateflow.scale import generation as generations
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from tests.sim.repartitioned import assert_everything_kept, run, written
from tests.sim.savepoint_world import PARTITIONS, World, topology
from tests.sim.test_savepoints import running


class Preempted:
    """A cluster on which something else happens right before the next change of the catalog."""

    def __init__(self, cluster: MemoryCluster, topic: str, other: Callable[[], object]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._others = [other]

    def writer(self, transactional_id: str | None = None) -> Writer:
        if transactional_id == self._topic and self._others:
            self._others.pop()()
        return self._cluster.writer(transactional_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


def preempted(cluster: MemoryCluster, app: str, other: Callable[[], object]) -> Cluster:
    return cast("Cluster", Preempted(cluster, f"{app}-control", other))


def begun(cluster: MemoryCluster, partitions: int) -> None:
    """What `scale start` does until its topics are there."""
    catalog = generations.load_catalog(cluster, "shop")
    generations.begin(cluster, catalog, RoutingTable.modulo(partitions).entry(), ManualClock(500))


# --- two changes of the partitions ----------------------------------------------------------------------


def test_the_later_of_two_counts_is_refused_and_the_first_is_finished(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    other = preempted(cluster, "shop", lambda: begun(cluster, 6))
    with pytest.raises(GenerationUnfinished, match="6 partitions"):
        run(other, RoutingTable.modulo(5).entry())
    entry = generations.preparing(generations.load_catalog(cluster, "shop"))
    assert entry is not None
    assert (entry.partitions, entry.created_ms) == (6, 500), "the first command's entry is untouched"
    run(cluster, RoutingTable.modulo(6).entry())
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_the_later_of_two_equal_changes_goes_on_with_the_first_one(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(preempted(cluster, "shop", lambda: begun(cluster, 6)), RoutingTable.modulo(6).entry())
    entries = generations.load_catalog(cluster, "shop").generations
    assert {number: entry.state for number, entry in entries.items()} == {0: "retired", 1: "active"}
    assert entries[1].created_ms == 500, "it resumed"
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_a_plan_of_a_generation_that_was_replaced_meanwhile_is_refused(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    other = preempted(cluster, "shop", lambda: run(cluster, RoutingTable.modulo(6).entry()))
    with pytest.raises(GenerationUnfinished, match="generation 1 became active"):
        run(other, RoutingTable.modulo(5).entry())
    assert sorted(generations.load_catalog(cluster, "shop").generations) == [0, 1]
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_a_change_that_is_undone_while_its_topics_are_created_ends(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    catalog = generations.load_catalog(cluster, "shop")
    begun(cluster, 6)
    generations.delete_topics(cluster, catalog, generations.load_catalog(cluster, "shop").generations[1])
    other = preempted(cluster, "shop", lambda: generations.abort(cluster, "shop"))
    with pytest.raises(GenerationUnfinished, match="aborted"):
        run(other, RoutingTable.modulo(6).entry())
    assert generations.load_catalog(cluster, "shop").active.generation == 0
    run(cluster, RoutingTable.modulo(5).entry())
    assert_everything_kept(app, 2, RoutingTable.modulo(5))


def test_topics_with_another_partition_count_are_refused_before_anything_is_created(
    cluster: MemoryCluster,
) -> None:
    written(cluster, RoutingTable.modulo(4))
    in_the_way = changelog_topic("shop", "totals", 1)
    cluster.create([TopicSpec(in_the_way, 3)])
    before = cluster.list_topics()
    with pytest.raises(PartitionCountChanged, match=f"{in_the_way} has 3 partitions"):
        run(cluster, RoutingTable.modulo(6).entry())
    assert cluster.list_topics() == before
    cluster.delete([in_the_way])
    run(cluster, RoutingTable.modulo(6).entry())


# --- a change of the partitions and a restore -----------------------------------------------------------


class Ended(BaseException):
    """The process of a restore ends here."""


def ending(point: str) -> Callable[[str], None]:
    def end(reached: str) -> None:
        if reached == point:
            raise Ended

    return end


@pytest.mark.slow
def test_a_change_of_the_partitions_leaves_a_restore_that_was_quicker_alone(quick_path: Path) -> None:
    world, savepoint = stopped(quick_path)

    def restore_until_its_topics_are_due() -> None:
        with handled(ending("refill.after_generation")), pytest.raises(Ended):
            world.restore(savepoint)

    other = preempted(world.cluster, "chain", restore_until_its_topics_are_due)
    with pytest.raises(GenerationUnfinished, match="savepoint 'one' of 'chain'"):
        start(other, "chain", RoutingTable.modulo(PARTITIONS + 2).entry(), InProcess(other), world.clock)
    world.restore(savepoint)
    catalog = ControlTopic(world.cluster, "chain").load()
    assert sorted(catalog.generations) == [0, 1]
    assert (catalog.active.generation, catalog.active.partitions) == (1, PARTITIONS)
    world.begin("w0", "w1")
    world.run()
    world.stop()
    assert world.state() == world.expected()


@pytest.mark.slow
def test_a_restore_leaves_a_change_of_the_partitions_that_was_quicker_alone(quick_path: Path) -> None:
    world, savepoint = stopped(quick_path)
    routing = RoutingTable.modulo(PARTITIONS + 2).entry()
    cluster = world.cluster

    def begin_change() -> None:
        generations.begin(cluster, generations.load_catalog(cluster, "chain"), routing, world.clock)

    world.cluster = cast("MemoryCluster", preempted(cluster, "chain", begin_change))
    with pytest.raises(GenerationUnfinished, match=f"to {PARTITIONS + 2} partitions"):
        world.restore(savepoint)
    world.cluster = cluster
    start(cluster, "chain", routing, InProcess(cluster), world.clock)
    assert ControlTopic(cluster, "chain").load().active.partitions == PARTITIONS + 2
    world.begin("w0", "w1")
    world.run()
    world.stop()
    assert world.state() == world.expected()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["a start", "a restore of another savepoint", "the same restore, finished"])
def test_of_two_that_take_a_free_id_the_later_leaves_the_first_alone(quick_path: Path, first: str) -> None:
    """Both found the id free, and the later one replaced the state of the first."""
    world = running(quick_path, 2)
    one, two = world.create("one"), world.create("two")
    world.run()
    world.stop()
    cluster = world.cluster

    def take_the_id() -> None:
        world.cluster = cluster
        if first == "a start":
            expected = expected_catalog(cluster, topology("other"), world.guarantee, PARTITIONS, world.clock)
            ControlTopic(cluster, "other").ensure(expected)
        else:
            world.restore(two if "another" in first else one, "other", as_new=True)

    world.cluster = cast("MemoryCluster", preempted(cluster, "other", take_the_id))
    with pytest.raises(ConfigError, match="there is an application 'other' already"):
        world.restore(one, "other", as_new=True)
    assert sorted(ControlTopic(cluster, "other").load().generations) == [0]
    if first != "a start":
        entry = ControlTopic(cluster, "other").load().active
        assert entry.savepoint == f"chain/{(two if 'another' in first else one).id}"


@pytest.mark.slow
def test_of_two_equal_restores_under_a_free_id_the_later_goes_on_with_the_first(quick_path: Path) -> None:
    world, savepoint = stopped(quick_path)
    cluster = world.cluster

    def restore_until_its_topics_are_due() -> None:
        world.cluster = cluster
        with handled(ending("refill.after_generation")), pytest.raises(Ended):
            world.restore(savepoint, "other", as_new=True)

    world.cluster = cast("MemoryCluster", preempted(cluster, "other", restore_until_its_topics_are_due))
    assert world.restore(savepoint, "other", as_new=True).generation == 0
    assert ControlTopic(cluster, "other").load().active.savepoint == f"chain/{savepoint.id}"


@pytest.mark.slow
def test_a_restore_refuses_topics_with_another_partition_count(quick_path: Path) -> None:
    world, savepoint = stopped(quick_path)
    in_the_way = changelog_topic("other", "numbers", 0)
    world.cluster.create([TopicSpec(in_the_way, PARTITIONS + 1)])
    with pytest.raises(PartitionCountChanged, match=f"{in_the_way} has {PARTITIONS + 1} partitions"):
        world.restore(savepoint, "other")
    world.cluster.delete([in_the_way])
    assert world.restore(savepoint, "other").generation == 0


def stopped(quick_path: Path) -> tuple[World, Savepoint]:
    """An application that has stopped, after a savepoint was made of it."""
    world = running(quick_path, 2)
    savepoint = world.create()
    world.run()
    world.stop()
    return world, savepoint
