"""Topics that are there already when an application starts: whose they are, and what becomes of the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import GenerationEntry, StoreEntry
from stateflow.catalog.names import control_topic
from stateflow.cli import reset
from stateflow.clock import ManualClock
from stateflow.errors import CatalogMissing, TopicForeign
from stateflow.failpoints import handled
from stateflow.log.base import Cluster, Committed, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.record import TopicPartition
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.own_topics import REPARTITION_CONFIG
from stateflow.runtime.worker.prepare import prepare
from tests.sim.counting import SOURCE, Number, Rekey

REPARTITION = "store-eu-limit-repartition"
CHANGELOG = "store-eu-limit-total-changelog"


def topology(app: str, step: str) -> Topology:
    """What re-keys words and counts them: the topics of ``store`` with ``eu-limit`` and ``store-eu`` with ``limit``."""
    store = StoreEntry(
        name=f"{step}-total",
        stage=step,
        kind="value",
        layout="plain",
        key_codec={"codec": "bytes"},
        value_codec={"codec": "int64"},
    )
    rekey = Stage("rekey", (Input(SOURCE),), (), (), (step,), Rekey)
    return Topology(app, (rekey, Stage(step, (Input(step, "rekey"),), (store,), (), (), Number)))


STORE, STORE_EU = topology("store", "eu-limit"), topology("store-eu", "limit")


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create([TopicSpec(SOURCE, 2)])
    return made


def start(cluster: Cluster, wanted: Topology) -> Wiring:
    return prepare(cluster, wanted, "exactly-once", 1, ManualClock(1_000_000))


class Killed(BaseException):
    """The process ends here."""


def kill() -> None:
    raise Killed


@contextmanager
def at(point: str, do: Callable[[], object]) -> Iterator[None]:
    """Have something happen where a start is at a point, once."""
    waiting = [do]

    def reached(reached_point: str) -> None:
        if reached_point == point and waiting:
            waiting.pop()()

    with handled(reached):
        yield


def replace_entry(entry: GenerationEntry, **changes: object) -> GenerationEntry:
    return msgspec.structs.replace(entry, **changes)


def write(cluster: Cluster, topic: str) -> None:
    writer = cluster.writer()
    writer.send(topic, b"k", b"v", partition=0, timestamp_ms=1)
    writer.commit()
    writer.close()


def test_the_topics_of_another_application_are_not_taken(cluster: MemoryCluster) -> None:
    start(cluster, STORE)
    with pytest.raises(TopicForeign, match=r"is a topic of the application 'store'"):
        start(cluster, STORE_EU)
    assert "store-eu-control" not in cluster.list_topics(), "nothing was written"
    start(cluster, STORE)


@pytest.mark.parametrize("first", [STORE, STORE_EU], ids=["shorter", "longer"])
@pytest.mark.parametrize("point", ["startup.before_topics", "startup.before_topic_ids"])
def test_topics_of_a_start_that_was_killed_are_its_own(
    cluster: MemoryCluster, first: Topology, point: str
) -> None:
    second = STORE_EU if first is STORE else STORE
    with at(point, kill), pytest.raises(Killed):
        start(cluster, first)
    with pytest.raises(TopicForeign, match=f"application '{first.app}'"):
        start(cluster, second)
    assert control_topic(second.app) not in cluster.list_topics(), "nothing was written"
    assert REPARTITION in start(cluster, first).catalog.active.topic_ids


def test_of_two_that_start_at_the_same_moment_one_is_refused(cluster: MemoryCluster) -> None:
    """Both have looked at the other's catalog before either is written."""
    with at("startup.before_catalog", lambda: start(cluster, STORE)), pytest.raises(TopicForeign):
        start(cluster, STORE_EU)
    start(cluster, STORE)
    with pytest.raises(TopicForeign):
        start(cluster, STORE_EU)


def test_topics_of_a_later_generation_belong_to_others_as_well(cluster: MemoryCluster) -> None:
    wiring = start(cluster, STORE)
    later = {f"{REPARTITION}-g1": "id-1", f"{CHANGELOG}-g1": "id-2"}
    entry = wiring.catalog.active
    control = ControlTopic(cluster, "store")
    control.write([replace_entry(entry, state="retired", topic_ids={})])
    control.write([replace_entry(entry, generation=1, topic_ids=later)])
    with pytest.raises(TopicForeign, match="application 'store'"):
        start(cluster, STORE_EU)


def test_two_that_share_topics_from_before_are_told(cluster: MemoryCluster) -> None:
    ids = start(cluster, STORE).catalog.active.topic_ids
    catalog = start(cluster, topology("store-eu", "other")).catalog
    entry = replace_entry(catalog.active, topic_ids={**catalog.active.topic_ids, **ids})
    ControlTopic(cluster, "store-eu").write([entry])
    for wanted in (STORE, topology("store-eu", "other")):
        with pytest.raises(TopicForeign, match="both have written to it"):
            start(cluster, wanted)


@pytest.mark.parametrize("before", [None, "startup.before_topics", "startup.before_topic_ids"])
def test_topics_with_records_of_unknown_origin_are_not_taken(
    cluster: MemoryCluster, before: str | None
) -> None:
    """Also where a start that was killed has left a catalog."""
    cluster.create([TopicSpec(REPARTITION, 1, 1, REPARTITION_CONFIG)])
    if before is not None:
        with at(before, kill), pytest.raises(Killed):
            start(cluster, STORE)
    write(cluster, REPARTITION)
    with pytest.raises(CatalogMissing if before is None else TopicForeign, match=REPARTITION):
        start(cluster, STORE)
    assert (control_topic("store") in cluster.list_topics()) == (before is not None)


def test_empty_topics_that_were_made_by_hand_are_taken(cluster: MemoryCluster) -> None:
    cluster.create([TopicSpec(REPARTITION, 1, 1, REPARTITION_CONFIG)])
    found = cluster.describe([REPARTITION])[REPARTITION]
    assert start(cluster, STORE).catalog.active.topic_ids[REPARTITION] == found.topic_id


def test_a_worker_that_starts_beside_the_first_finds_its_topics(cluster: MemoryCluster) -> None:
    """The other has written to topics by the time that this one, which saw no catalog, looks at them."""

    def first() -> None:
        start(cluster, STORE)
        write(cluster, REPARTITION)

    for point in ("startup.before_catalog", "startup.before_topics"):
        with at(point, first):
            wiring = start(cluster, STORE)
        assert set(wiring.catalog.active.topic_ids) == {REPARTITION, CHANGELOG}


def test_an_added_step_does_not_take_what_is_there(cluster: MemoryCluster) -> None:
    start(cluster, STORE)
    more = topology("store", "more").stages[1]
    cluster.create([TopicSpec("store-more-repartition", 1)])
    write(cluster, "store-more-repartition")
    first, second = STORE.stages
    wanted = Topology("store", (replace(first, rekeys=(*first.rekeys, "more")), second, more))
    with pytest.raises(TopicForeign, match="store-more-repartition hold records"):
        start(cluster, wanted)


def lose_catalog(cluster: MemoryCluster, *, whole: bool) -> None:
    """Delete the control topic, or all records of it."""
    control = control_topic("store")
    if whole:
        cluster.delete([control])
        return
    cluster.alter_topic_config(control, {"cleanup.policy": "delete"})
    place = TopicPartition(control, 0)
    cluster.trim({place: cluster.ranges([place])[place].offset_next})


@pytest.mark.parametrize("whole", [True, False], ids=["deleted", "emptied"])
@pytest.mark.parametrize("generation", [0, 1])
def test_without_its_catalog_an_application_does_not_begin_anew(
    cluster: MemoryCluster, whole: bool, generation: int
) -> None:
    start(cluster, STORE)
    topics = [REPARTITION, CHANGELOG]
    if generation:
        cluster.delete(topics)
        topics = [f"{topic}-g1" for topic in topics]
        cluster.create([TopicSpec(topic, 2) for topic in topics])
    write(cluster, topics[1])
    lose_catalog(cluster, whole=whole)
    before = cluster.list_topics()
    with pytest.raises(CatalogMissing, match=f"still {topics[1]}") as told:
        start(cluster, STORE)
    assert "stateflow reset" in told.value.action
    assert cluster.list_topics() == before


def test_positions_that_workers_have_committed_show_that_a_catalog_is_gone(cluster: MemoryCluster) -> None:
    place = TopicPartition(SOURCE, 0)
    cluster.commit("store", {place: Committed(7, "sf2:AA==")})
    with pytest.raises(CatalogMissing, match=r"committed position in words\[0\]"):
        start(cluster, STORE)
    cluster.commit("store", {place: Committed(7)})  # as set by hand, to begin there
    start(cluster, STORE)


def test_a_reset_without_a_catalog_deletes_what_the_code_shows_to_be_its_own(
    cluster: MemoryCluster, tmp_path: Path
) -> None:
    start(cluster, STORE)
    write(cluster, REPARTITION)
    write(cluster, CHANGELOG)
    lose_catalog(cluster, whole=True)
    cluster.create([TopicSpec("store-else-changelog", 1)])
    left = reset.what_is_left(cluster, STORE, 1)
    assert left.topics == [REPARTITION, CHANGELOG]
    reset._forget(cluster, left, tmp_path / "none", yes=True, dry_run=False, as_json=True)
    assert cluster.list_topics() == ["store-else-changelog", SOURCE]
    with pytest.raises(CatalogMissing, match="there is no catalog"):
        reset.what_is_left(cluster, STORE, 1)
    start(cluster, STORE)


def test_a_reset_leaves_topics_that_another_application_records(cluster: MemoryCluster) -> None:
    shared = start(cluster, STORE).catalog.active.topic_ids
    catalog = start(cluster, topology("store-eu", "other")).catalog
    own = catalog.active.topic_ids
    ControlTopic(cluster, "store-eu").write([replace_entry(catalog.active, topic_ids={**own, **shared})])
    left = reset.what_is_left(cluster, topology("store-eu", "other"), 1)
    assert left.kept == sorted(shared)
    assert left.topics == [*sorted(own), control_topic("store-eu")]
