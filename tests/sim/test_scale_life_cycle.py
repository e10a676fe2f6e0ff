"""Repartition from beginning to end on the memory cluster: what it keeps, what it refuses, how it is
undone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import RoutingEntry, StageEntry
from stateflow.catalog.names import changelog_topic, repartition_topic, task_id, transactional_id
from stateflow.changelog.format import TOUCH_KEY
from stateflow.clock import ManualClock
from stateflow.errors import (
    AuditFailed,
    CatalogMissing,
    ConfigError,
    GenerationUnfinished,
    GraphError,
    ProducerFenced,
    StillRunning,
)
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.runtime.watermarks import Watermarks
from stateflow.scale import generation as generations
from stateflow.scale.engine import InProcess
from stateflow.scale.plan import make_plan
from stateflow.scale.repartition import move_partition
from stateflow.scale.start import Outcome, ScaleSettings, start
from stateflow.state.layout import index_bytes, prefixed_key, routing_key, window_key
from stateflow.testing.written import SOURCE_PARTITIONS, STEP, STORES, WrittenApp

SMALL_CHUNKS = ScaleSettings(chunk_records_max=7, audit_keys_max=50)
HEADERS = (("trace", b"abc"),)


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    made = MemoryCluster()
    yield made
    made.close()


def written(cluster: Cluster, routing: RoutingTable, **options: Any) -> WrittenApp:
    """An application with a few hundred changes in each store, deletions among them, and unread records."""
    app = WrittenApp(cluster, "shop", routing, **options)
    app.create()
    rng = random.Random(7)
    keys = [f"key-{number}".encode() for number in range(60)]

    def changes(to_store_key: Callable[[bytes], bytes]) -> list[tuple[bytes, bytes | None]]:
        rows: list[tuple[bytes, bytes | None]] = []
        for number in range(300):
            key = to_store_key(rng.choice(keys))
            rows.append((key, None if rng.random() < 0.2 else str(number).encode()))
        return rows

    app.write_state("totals", changes(lambda key: key))
    app.write_state("hourly", changes(lambda key: window_key(key, rng.randrange(3) * 3_600_000)))
    app.write_state("recent", changes(lambda key: prefixed_key(key, index_bytes(rng.randrange(3)))))
    app.write_unread([(rng.choice(keys), b"read already", 1) for _ in range(20)])
    app.commit_inputs({partition: 100 + partition for partition in range(routing.partitions)})
    app.write_unread([(rng.choice(keys), str(number).encode(), 1000 + number) for number in range(50)])
    app.write_unread([(b"key-1", b"with headers", 2000)], headers=HEADERS)
    return app


def run(cluster: Cluster, routing: RoutingEntry, **options: Any) -> Outcome:
    options.setdefault("settings", SMALL_CHUNKS)
    engine = options.pop("engine", None) or InProcess(cluster)
    return start(cluster, "shop", routing, engine, ManualClock(1_000), **options)


def assert_everything_kept(app: WrittenApp, generation: int, routing: RoutingTable) -> None:
    """Every key, value and unread record is in the new generation, where the new table puts it."""
    for store in STORES:
        merged: dict[bytes, bytes] = {}
        for partition, state in app.found_state(store.name, generation).items():
            for key in state:
                assert routing.partition_of(routing_key(store.layout, key)) == partition
            merged.update(state)
        assert merged == app.expected[store.name]
    unread = app.found_unread(generation)
    assert set(unread) == set(range(routing.partitions))
    values = {}
    for partition, records in unread.items():
        for record in records:
            assert record.key is not None, "watermark records stay behind"
            assert routing.partition_of(record.key) == partition
            values[record.value] = record
        for key in {record.key for record in records}:
            times = [record.timestamp_ms for record in records if record.key == key]
            assert times == sorted(times), "the order of each key is kept"
    assert sorted(values) == sorted([str(number).encode() for number in range(50)] + [b"with headers"])
    assert values[b"with headers"].headers == HEADERS
    assert values[b"7"].timestamp_ms == 1007
    assert values[b"7"].headers == ()


CHANGES = [
    pytest.param(RoutingTable.modulo(4), RoutingTable.modulo(6), id="4-to-6"),
    pytest.param(RoutingTable.modulo(6), RoutingTable.modulo(3), id="6-to-3"),
    pytest.param(RoutingTable.modulo(3), RoutingTable.modulo(1), id="3-to-1"),
    pytest.param(RoutingTable.modulo(4), RoutingTable.even_ranges(4), id="modulo-to-ranges"),
    pytest.param(RoutingTable.even_ranges(4), RoutingTable.even_ranges(4).split(1), id="split"),
    pytest.param(RoutingTable.even_ranges(4), RoutingTable.even_ranges(4).merge(0, 2), id="merge"),
]


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_everything_is_kept_and_audited(
    cluster: MemoryCluster, before: RoutingTable, after: RoutingTable
) -> None:
    app = written(cluster, before)

    outcome = run(cluster, after.entry())

    assert_everything_kept(app, 1, after)
    assert (outcome.partitions_from, outcome.partitions_to) == (before.partitions, after.partitions)
    assert outcome.keys_total == sum(len(state) for state in app.expected.values())
    assert outcome.unread_total == 51
    assert len(outcome.audit) == (len(STORES) + 1) * after.partitions
    assert all(row.equal for row in outcome.audit)
    catalog = generations.load_catalog(cluster, "shop")
    assert catalog.active.generation == 1
    assert catalog.active.routing == after.entry()
    assert catalog.active.audit == outcome.audit
    assert catalog.generations[0].state == "retired"


def test_tasks_begin_where_the_slowest_task_before_them_was(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(cluster, RoutingTable.modulo(6).entry())
    inputs = app.committed_inputs(1)
    assert set(inputs) == set(range(6))
    for position in inputs.values():
        marks = Watermarks.decode(position.metadata, SOURCE_PARTITIONS)
        assert (position.offset_next, marks.value_ms) == (0, 100)


def test_new_topics_have_the_settings_of_the_old_ones_and_their_ids_are_recorded(
    cluster: MemoryCluster,
) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    cluster.alter_topic_config(changelog_topic("shop", "totals"), {"min.cleanable.dirty.ratio": "0.17"})
    run(cluster, RoutingTable.modulo(6).entry())
    topics = [changelog_topic("shop", store.name, 1) for store in STORES] + [
        repartition_topic("shop", STEP, 1)
    ]
    found = cluster.describe(topics)
    assert {info.partitions for info in found.values()} == {6}
    recorded = generations.load_catalog(cluster, "shop").active.topic_ids
    assert recorded == {name: info.topic_id for name, info in found.items()}
    for topic in topics:
        assert cluster.topic_config(topic) == cluster.topic_config(topic.removesuffix("-g1"))
    assert cluster.topic_config(topics[0])["min.cleanable.dirty.ratio"] == "0.17"
    assert app.found_state("totals", 0), "the old generation is still there"


def test_a_task_without_committed_input_makes_nothing_late(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(2))
    other = WrittenApp(cluster, "other", RoutingTable.modulo(2))
    other.create()
    other.write_unread([(b"a", b"1", 10), (b"b", b"2", 20)])
    start(cluster, "other", RoutingTable.modulo(3).entry(), InProcess(cluster), ManualClock())
    assert sum(len(records) for records in other.found_unread(1).values()) == 2
    marks = [Watermarks.decode(p.metadata, SOURCE_PARTITIONS) for p in other.committed_inputs(1).values()]
    assert [mark.value_ms for mark in marks] == [-1, -1, -1]
    assert app.app != other.app


def test_one_change_after_another(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(cluster, RoutingTable.modulo(6).entry())
    run(cluster, RoutingTable.modulo(3).entry())
    assert_everything_kept(app, 2, RoutingTable.modulo(3))
    states = {n: entry.state for n, entry in generations.load_catalog(cluster, "shop").generations.items()}
    assert states == {0: "retired", 1: "retired", 2: "active"}


def test_several_lanes_do_the_same(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(cluster, RoutingTable.modulo(6).entry(), engine=InProcess(cluster, lanes=3))
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_at_least_once_applications_are_moved_too(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4), guarantee="at-least-once")
    run(cluster, RoutingTable.modulo(6).entry())
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_the_plan_names_what_moves_and_changes_nothing(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    topics = cluster.list_topics()
    catalog = generations.load_catalog(cluster, "shop")
    plan = make_plan(cluster, catalog, RoutingTable.modulo(6).entry(), lanes=2, count_keys=True)
    assert (plan.generation_from, plan.generation_to, plan.resumes) == (0, 1, False)
    assert len(plan.partitions) == 4 * (len(STORES) + 1)
    keys = dict.fromkeys([*app.expected, f"{STEP}-repartition"], 0)
    for row in plan.partitions:
        assert row.keys is not None
        keys[row.name] += row.keys
    assert keys == {**{store: len(state) for store, state in app.expected.items()}, f"{STEP}-repartition": 51}
    assert plan.slots_total >= 900
    assert plan.bytes_total > 5_000
    assert plan.seconds_predicted > 0
    assert cluster.list_topics() == topics


# --- refusals -------------------------------------------------------------------------------------------


class Listener:
    """A worker that does nothing."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None: ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None: ...


@pytest.mark.parametrize("group", ["shop", "shop-spark"])
def test_running_workers_are_refused(cluster: MemoryCluster, group: str) -> None:
    written(cluster, RoutingTable.modulo(4))
    member = cluster.group_consumer(group, [repartition_topic("shop", STEP)], Listener())
    member.poll(1, 0)
    with pytest.raises(StillRunning, match="shop"):
        run(cluster, RoutingTable.modulo(6).entry())
    member.close()
    assert generations.preparing(generations.load_catalog(cluster, "shop")) is None


def test_an_unknown_application_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(CatalogMissing):
        run(cluster, RoutingTable.modulo(6).entry())


def test_a_change_to_the_same_routing_is_refused(cluster: MemoryCluster) -> None:
    written(cluster, RoutingTable.modulo(4))
    with pytest.raises(ConfigError, match="already has 4"):
        run(cluster, RoutingTable.modulo(4).entry())


def test_state_behind_a_source_topic_is_refused_with_advice(cluster: MemoryCluster) -> None:
    cluster.create([TopicSpec("shop-source", 2)])
    WrittenApp(cluster, "shop", RoutingTable.modulo(2)).create()
    control = ControlTopic(cluster, "shop")
    control.write([StageEntry(name=STEP, sources=("shop-source",), source_partitions=2)])
    with pytest.raises(GraphError, match="put key_by"):
        run(cluster, RoutingTable.modulo(3).entry())


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({}, "not clear"),
        ({"partitions": 3, "split": 1}, "not clear"),
        ({"split": 1}, "modulo"),
    ],
)
def test_unclear_wishes_are_refused(cluster: MemoryCluster, wish: dict[str, int], message: str) -> None:
    written(cluster, RoutingTable.modulo(4))
    catalog = generations.load_catalog(cluster, "shop")
    with pytest.raises(ConfigError, match=message):
        generations.target_routing(catalog, **wish)  # type: ignore[arg-type]


def test_wishes_become_routing_tables(cluster: MemoryCluster) -> None:
    ranges = RoutingTable.even_ranges(4)
    written(cluster, ranges)
    catalog = generations.load_catalog(cluster, "shop")
    assert generations.target_routing(catalog, partitions=6) == RoutingTable.even_ranges(6).entry()
    assert generations.target_routing(catalog, split=2) == ranges.split(2).entry()
    assert generations.target_routing(catalog, merge=(1, 2)) == ranges.merge(1, 2).entry()


# --- undoing and finishing ------------------------------------------------------------------------------


class Stopped(Exception):
    """Raised where a test stops a repartition."""


class StoppingEngine(InProcess):
    """Stops before it runs the audit, after everything was moved."""

    def run(self, work: Callable[[Cluster, Any], Any], jobs: Sequence[Any]) -> list[Any]:
        if work is not move_partition:
            raise Stopped
        return super().run(work, jobs)


def stopped_half_way(cluster: MemoryCluster) -> WrittenApp:
    app = written(cluster, RoutingTable.modulo(4))
    with pytest.raises(Stopped):
        run(cluster, RoutingTable.modulo(6).entry(), engine=StoppingEngine(cluster))
    return app


def test_an_unfinished_change_is_resumed_with_the_same_count(cluster: MemoryCluster) -> None:
    app = stopped_half_way(cluster)
    with pytest.raises(GenerationUnfinished, match="6 partitions"):
        run(cluster, RoutingTable.modulo(5).entry())
    outcome = run(cluster, RoutingTable.modulo(6).entry())
    assert outcome.records_read_total == 0, "the first attempt had moved everything"
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


def test_abort_returns_to_the_old_generation(cluster: MemoryCluster) -> None:
    app = stopped_half_way(cluster)
    before = {store.name: app.found_state(store.name, 0) for store in STORES}
    aborted = generations.abort(cluster, "shop")
    assert (aborted.generation, aborted.state, aborted.topic_ids) == (1, "aborted", {})
    assert not [topic for topic in cluster.list_topics() if topic.endswith("-g1")]
    assert {store.name: app.found_state(store.name, 0) for store in STORES} == before
    assert generations.load_catalog(cluster, "shop").active.generation == 0

    outcome = run(cluster, RoutingTable.modulo(5).entry())  # another count is fine now, under a new number
    assert outcome.generation_to == 2
    assert_everything_kept(app, 2, RoutingTable.modulo(5))


def test_there_is_nothing_to_abort_twice(cluster: MemoryCluster) -> None:
    stopped_half_way(cluster)
    generations.abort(cluster, "shop")
    with pytest.raises(ConfigError, match="no unfinished change"):
        generations.abort(cluster, "shop")


def test_finalize_deletes_old_topics_and_nothing_else(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    run(cluster, RoutingTable.modulo(6).entry())
    deleted = generations.finalize(cluster, "shop")
    assert deleted == sorted(
        [changelog_topic("shop", store.name) for store in STORES] + [repartition_topic("shop", STEP)]
    )
    assert not set(deleted) & set(cluster.list_topics())
    assert "shop-source" in cluster.list_topics()
    assert_everything_kept(app, 1, RoutingTable.modulo(6))
    assert generations.finalize(cluster, "shop") == []


def test_finalize_waits_for_an_unfinished_change(cluster: MemoryCluster) -> None:
    stopped_half_way(cluster)
    with pytest.raises(GenerationUnfinished):
        generations.finalize(cluster, "shop")


# --- what must not slip through -------------------------------------------------------------------------


class TamperingEngine(InProcess):
    """Spoils the new generation between the move and the audit."""

    def __init__(self, cluster: Cluster, spoil: Callable[[Cluster], None]) -> None:
        super().__init__(cluster)
        self._spoil = spoil

    def run(self, work: Callable[[Cluster, Any], Any], jobs: Sequence[Any]) -> list[Any]:
        results = super().run(work, jobs)
        if work is move_partition:
            self._spoil(self._cluster)
        return results


def send(cluster: Cluster, topic: str, key: bytes, value: bytes | None, partition: int) -> None:
    writer = cluster.writer()
    writer.begin()
    writer.send(topic, key, value, partition=partition, timestamp_ms=1)
    writer.commit()
    writer.close()


def lose_a_key(cluster: Cluster, app: WrittenApp) -> None:
    key = next(iter(app.expected["totals"]))
    owner = RoutingTable.modulo(6).partition_of(key)
    send(cluster, changelog_topic("shop", "totals", 1), key, None, owner)


def change_a_value(cluster: Cluster, app: WrittenApp) -> None:
    key = next(iter(app.expected["hourly"]))
    owner = RoutingTable.modulo(6).partition_of(routing_key("window", key))
    send(cluster, changelog_topic("shop", "hourly", 1), key, b"spoilt", owner)


def misplace_a_key(cluster: Cluster, app: WrittenApp) -> None:
    key, value = next(iter(app.expected["totals"].items()))
    owner = RoutingTable.modulo(6).partition_of(key)
    send(cluster, changelog_topic("shop", "totals", 1), key, None, owner)
    send(cluster, changelog_topic("shop", "totals", 1), key, value, (owner + 1) % 6)


def double_an_unread_record(cluster: Cluster, _app: WrittenApp) -> None:
    owner = RoutingTable.modulo(6).partition_of(b"key-1")
    send(cluster, repartition_topic("shop", STEP, 1), b"key-1", b"with headers", owner)


@pytest.mark.parametrize(
    "spoil",
    [lose_a_key, change_a_value, misplace_a_key, double_an_unread_record],
    ids=lambda spoil: spoil.__name__,
)
def test_the_audit_sees_every_difference(
    cluster: MemoryCluster, spoil: Callable[[Cluster, WrittenApp], None]
) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    engine = TamperingEngine(cluster, lambda log: spoil(log, app))
    with pytest.raises(AuditFailed, match="differ"):
        run(cluster, RoutingTable.modulo(6).entry(), engine=engine)
    catalog = generations.load_catalog(cluster, "shop")
    assert catalog.active.generation == 0
    assert catalog.generations[1].state == "preparing"


def test_a_worker_that_ran_in_between_is_noticed(cluster: MemoryCluster) -> None:
    written(cluster, RoutingTable.modulo(4))
    late = TamperingEngine(
        cluster, lambda log: send(log, changelog_topic("shop", "totals"), b"key-1", b"late", 0)
    )
    with pytest.raises(GenerationUnfinished, match="was written to"):
        run(cluster, RoutingTable.modulo(6).entry(), engine=late)
    assert generations.load_catalog(cluster, "shop").active.generation == 0


def test_a_touch_record_in_between_is_allowed(cluster: MemoryCluster) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    touch = TamperingEngine(
        cluster, lambda log: send(log, changelog_topic("shop", "totals"), TOUCH_KEY, b"", 0)
    )
    run(cluster, RoutingTable.modulo(6).entry(), engine=touch)
    assert_everything_kept(app, 1, RoutingTable.modulo(6))


@pytest.mark.parametrize("stage", ["source", STEP])
def test_a_worker_believed_dead_can_write_nothing_more(cluster: MemoryCluster, stage: str) -> None:
    app = written(cluster, RoutingTable.modulo(4))
    zombie = cluster.writer(transactional_id("shop", 0, task_id(stage, 1)))
    zombie.begin()  # killed in an open transaction, which would hold the last stable offset for long
    zombie.send(changelog_topic("shop", "totals"), b"key-1", b"from a zombie", partition=1)
    zombie.send(repartition_topic("shop", STEP), b"key-1", b"from a zombie", partition=1)
    run(cluster, RoutingTable.modulo(6).entry())
    assert_everything_kept(app, 1, RoutingTable.modulo(6))
    with pytest.raises(ProducerFenced):
        zombie.commit()


def test_a_generation_aborted_under_a_running_job_never_becomes_active(cluster: MemoryCluster) -> None:
    written(cluster, RoutingTable.modulo(4))
    catalog = generations.load_catalog(cluster, "shop")
    catalog, entry = generations.begin(cluster, catalog, RoutingTable.modulo(6).entry(), ManualClock())
    generations.abort(cluster, "shop")
    with pytest.raises(GenerationUnfinished):
        generations.activate(cluster, catalog, entry, (), ManualClock())
    assert generations.load_catalog(cluster, "shop").active.generation == 0
