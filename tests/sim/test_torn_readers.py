"""Whoever reads a changelog beside its task goes by commit records, too; and setting right survives an abort."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.changelog.sequences import resolve
from stateflow.checkpoint.tails import read_tails
from stateflow.errors import TransactionAborted
from stateflow.query.snapshot import store_snapshot
from stateflow.record import TopicPartition
from stateflow.runtime.opening.opening import Opener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.scale.reading import live_state
from stateflow.store.memory import MemoryTaskStores
from tests.sim.counting import APP, STORE, number_of
from tests.sim.crashing import CrashPlan
from tests.sim.test_worker_crashes import WORDS, World
from tests.sim.test_worker_gives_up import Aborting

TOPIC = f"{APP}-{STORE}-changelog"


@pytest.fixture
def torn() -> World:
    """All is committed; then half a commit becomes visible in every changelog: each word's count is nonsense."""
    world = World("exactly-once")
    world.feed(WORDS)
    worker = world.worker(CrashPlan())
    world.run_to_the_end(worker)
    worker.stop()
    worker.run()
    world.cluster.end_sessions(APP)
    writer = world.cluster.writer()
    for task in stateful(world):
        writer.send(TOPIC, b"half", (7).to_bytes(8, "big"), partition=task.partition)
        writer.send(TOPIC, WORDS[0], (99).to_bytes(8, "big"), partition=task.partition)
    writer.commit()
    writer.close()
    return world


def stateful(world: World) -> list[TaskWiring]:
    return [task for task in world.wiring.tasks() if task.changelogs]


def test_a_snapshot_leaves_out_half_a_commit(torn: World) -> None:
    catalog = ControlTopic(torn.cluster, APP).load()
    snapshot = store_snapshot(torn.cluster, catalog, STORE)
    snapshot = replace(snapshot, table=replace(snapshot.table, value_codec={"codec": "bytes"}))
    found: dict[bytes, int] = {}
    read: dict[bytes, int] = {}
    seen: set[bytes] = set()
    for partition, offsets in snapshot.ranges.items():
        source = TopicPartition(snapshot.topic, partition)
        whole = torn.cluster.ranges([source])[source]
        for state in live_state(torn.cluster, source, offsets):
            found |= {key: number_of(value) for key, value in state.items()}
        for batch in snapshot.batches(torn.cluster, partition):
            read |= {row["key"]: number_of(row["value"]) for row in batch.to_pylist()}
        for state in live_state(torn.cluster, source, whole):
            seen |= state.keys()
    assert found == {word: WORDS.count(word) for word in WORDS}
    assert read == found, "who reads what came meanwhile stops there, too"
    assert b"half" in seen, "to a reader of committed records it is there"


class AbortingCluster:
    """The memory cluster, whose stateful writers' commits are turned down a few times."""

    def __init__(self, real: object, times: int) -> None:
        self._real = real
        self._times = [times]

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def writer(self, transactional_id: str | None = None) -> object:
        return Aborting(self._real.writer(transactional_id), self._times)  # type: ignore[attr-defined]


def open_first(world: World, times: int) -> None:
    opener = Opener(
        AbortingCluster(world.cluster, times),  # type: ignore[arg-type]
        lambda wiring, _cancelled: MemoryTaskStores(
            [store.name for store in wiring.stage.stores], world.clock
        ),
        WorkerSettings(restore_threads=0),
        world.clock,
    )
    opener.open(stateful(world)[0], lambda: False).task.close()


@pytest.mark.parametrize("times", [0, 1, 2])
def test_setting_right_that_is_aborted_opens_the_task_again(torn: World, times: int) -> None:
    open_first(torn, times)
    tails = read_tails(torn.cluster, stateful(torn)[0].changelogs)
    assert not resolve(tails).is_torn


def test_setting_right_that_is_aborted_again_and_again_is_an_error(torn: World) -> None:
    with pytest.raises(TransactionAborted):
        open_first(torn, 3)
