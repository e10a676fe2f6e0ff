"""What `stateflow reset --to-earliest` moves: positions whose records are gone, and no others."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from stateflow.cli import reset
from stateflow.errors import ConfigError, OffsetOutOfRange
from stateflow.log.base import Committed, TopicSpec
from stateflow.record import TopicPartition
from tests.sim.counting import APP, SOURCE, STORE
from tests.sim.crashing import CrashPlan
from tests.sim.test_worker_crashes import WORDS, World, logged_state

GONE = TopicPartition(SOURCE, 0)
KEPT = TopicPartition(SOURCE, 1)


def live(world: World) -> None:
    worker = world.worker(CrashPlan())
    world.run_to_the_end(worker)
    worker.stop()
    worker.run()


def positions(world: World) -> dict[TopicPartition, Committed]:
    return world.cluster.committed(APP, [GONE, KEPT])


def with_a_gap() -> World:
    """One life long ago; then four records came, and retention took two of them unread."""
    world = World("exactly-once")
    world.feed(WORDS)
    live(world)
    writer = world.cluster.writer()
    for _ in range(4):
        writer.send(SOURCE, None, b"late", partition=GONE.partition, timestamp_ms=5)
    writer.commit()
    writer.close()
    world.cluster.trim({GONE: positions(world)[GONE].offset_next + 2})
    return world


def accept_gaps(world: World) -> list[reset.Gap]:
    world.clock.advance(ms=60_000)  # the session of a worker that died is over
    assert world.cluster.group_members(APP) == []
    found = reset.gaps(world.cluster, world.wiring.catalog)
    reset.accept(world.cluster, world.wiring.catalog, found)
    return found


def test_only_the_partition_with_the_gap_is_moved() -> None:
    world = with_a_gap()
    worker = world.worker(CrashPlan())
    with pytest.raises(OffsetOutOfRange, match="no longer has the records") as told:
        world.run_to_the_end(worker)
    assert "--to-earliest" in told.value.action
    worker.close()

    before = positions(world)
    (gap,) = accept_gaps(world)
    offset_next = before[GONE].offset_next
    assert str(gap) == f"{GONE} from {offset_next} to {offset_next + 2} (retention removed what is between)"
    assert positions(world) == {**before, GONE: Committed(offset_next + 2, before[GONE].metadata)}
    live(world)
    assert logged_state(world) == {**Counter(WORDS), b"late": 2}
    assert accept_gaps(world) == [], "a second time there is nothing to do"


def test_a_source_that_was_created_anew_is_read_from_its_start() -> None:
    world = World("exactly-once")
    world.feed(WORDS)
    live(world)
    world.cluster.delete([SOURCE])
    world.cluster.create([TopicSpec(SOURCE, 2)])
    world.feed([b"new"])
    found = accept_gaps(world)
    assert [(gap.source, gap.is_recreated) for gap in found] == [(GONE, True), (KEPT, True)]
    assert positions(world) == {GONE: Committed(0), KEPT: Committed(0)}


def test_state_that_follows_the_source_is_not_left_behind_by_its_position() -> None:
    world = with_a_gap()
    catalog = world.wiring.catalog
    bound = msgspec.structs.replace(catalog.stores[STORE], stage="rekey")
    with pytest.raises(ConfigError, match="keep state by their partitions"):
        reset.gaps(world.cluster, msgspec.structs.replace(catalog, stores={STORE: bound}))
