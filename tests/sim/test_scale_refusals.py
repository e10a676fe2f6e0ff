"""Repartition on the memory cluster: what it refuses, how it is resumed, undone and finished."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import InputEntry, StageEntry
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.errors import (
    BrokerRefused,
    CatalogMissing,
    ConfigError,
    GenerationUnfinished,
    GraphError,
    PartitionCountChanged,
    StillRunning,
)
from stateflow.lab.applications.written import STEP, STORES, WrittenApp
from stateflow.log.base import TopicSpec
from stateflow.log.forwarding import ForwardingCluster
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale.engine import InProcess
from stateflow.scale.state_move import write_slice
from tests.sim.repartitioned import assert_everything_kept, run, written


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


def test_local_workers_wait_for_a_query_to_end(cluster: MemoryCluster) -> None:
    written(cluster, RoutingTable.modulo(4))
    worker = cluster.group_consumer("shop", [repartition_topic("shop", STEP)], Listener())
    generations.await_stopped(
        cluster, "shop", 0, refuse=generations.refuse_beside_query
    )  # workers may join workers
    query = cluster.group_consumer("shop-spark", [repartition_topic("shop", STEP)], Listener())
    with pytest.raises(StillRunning, match="Spark query"):
        generations.await_stopped(cluster, "shop", 0, refuse=generations.refuse_beside_query)
    query.close()
    generations.await_stopped(cluster, "shop", 0, refuse=generations.refuse_beside_query)
    worker.close()


def test_time_without_an_answer_of_the_broker_does_not_count(cluster: MemoryCluster) -> None:
    """While it is away it ends no session, and afterwards sessions have their whole time again."""
    looks: list[float] = []

    def refuse(_cluster: object, app: str) -> None:
        looks.append(time.monotonic())
        if len(looks) == 1:
            time.sleep(0.5)  # an outage longer than the wait
        if len(looks) < 3:
            raise StillRunning(f"a member of {app} is there.", action="wait.")

    generations.await_stopped(cluster, "shop", 0.4, refuse=refuse)
    assert len(looks) == 3


@pytest.mark.parametrize("leave", [True, False], ids=["leave", "stay"])
def test_members_that_leave_one_after_the_other_are_waited_for(cluster: MemoryCluster, leave: bool) -> None:
    """Where workers end amid a rebalance, one has another session when that of the first is over."""
    looks: list[int] = []

    def refuse(_cluster: object, app: str) -> None:
        looks.append(2 if len(looks) < 3 else 1)  # a member leaves amid the wait for it
        if not leave or len(looks) < 6:
            members = [f"{app}-{number}" for number in range(looks[-1])]
            raise StillRunning(f"{len(members)} members of {app}.", action="wait.", members=members)

    with nullcontext() if leave else pytest.raises(StillRunning, match="1 members"):
        generations.await_stopped(cluster, "shop", 0.6, refuse=refuse)
    assert len(looks) == (6 if leave else 7), "three pauses after the second one left"


def test_an_unknown_application_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(CatalogMissing):
        run(cluster, RoutingTable.modulo(6).entry())


def test_a_change_to_the_same_routing_is_refused(cluster: MemoryCluster) -> None:
    written(cluster, RoutingTable.modulo(4))
    with pytest.raises(ConfigError, match="already has 4"):
        run(cluster, RoutingTable.modulo(4).entry())


@pytest.mark.parametrize("partitions", [0, -1, 10**6 + 1, 10**9])
@pytest.mark.parametrize("ranges", [False, True])
def test_a_count_that_no_topic_has_is_refused(cluster: MemoryCluster, partitions: int, ranges: bool) -> None:
    written(cluster, RoutingTable.modulo(4))
    catalog = generations.load_catalog(cluster, "shop")
    with pytest.raises(ConfigError, match=f"{partitions} partitions") as caught:
        generations.target_routing(catalog, partitions=partitions, ranges=ranges)
    assert "1 to 1,000,000" in caught.value.action


def test_what_can_be_seen_beforehand_is_refused_beforehand(cluster: MemoryCluster) -> None:
    """As a plan and a dry run do it: the same errors as of the change itself, and nothing is changed."""
    written(cluster, RoutingTable.modulo(4))
    catalog, six = generations.load_catalog(cluster, "shop"), RoutingTable.modulo(6).entry()
    generations.check_possible(cluster, catalog, six)
    with pytest.raises(ConfigError, match="already has 4"):
        generations.check_possible(cluster, catalog, RoutingTable.modulo(4).entry())
    cluster.create([TopicSpec(changelog_topic("shop", STORES[0].name, 1), 3)])
    with pytest.raises(PartitionCountChanged, match="has 3 partitions"):
        generations.check_possible(cluster, catalog, six)
    with pytest.raises(PartitionCountChanged, match="has 3 partitions"):
        run(cluster, six)
    assert generations.preparing(generations.load_catalog(cluster, "shop")) is None


class Refusing(ForwardingCluster):
    """Brokers that would create no topics."""

    def check_create(self, topics: Iterable[TopicSpec]) -> None:
        raise BrokerRefused("no.", action="ask the policy.")


def test_topics_that_brokers_refuse_leave_no_unfinished_change(cluster: MemoryCluster) -> None:
    """The application could not be started then until somebody aborted it."""
    written(cluster, RoutingTable.modulo(4))
    with pytest.raises(BrokerRefused):
        run(Refusing(cluster), RoutingTable.modulo(6).entry())
    assert generations.preparing(generations.load_catalog(cluster, "shop")) is None


def test_state_behind_a_source_topic_is_refused_with_advice(cluster: MemoryCluster) -> None:
    cluster.create([TopicSpec("shop-source", 2)])
    WrittenApp(cluster, "shop", RoutingTable.modulo(2)).create()
    control = ControlTopic(cluster, "shop")
    control.write([StageEntry(name=STEP, inputs=(InputEntry(name="shop-source"),), source_partitions=2)])
    with pytest.raises(GraphError, match="put key_by"):
        run(cluster, RoutingTable.modulo(3).entry())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "not clear"),
        ({"partitions": 3, "split": 1}, "not clear"),
        ({"split": 1}, "modulo"),
    ],
)
def test_unclear_requests_are_refused(cluster: MemoryCluster, asked: dict[str, int], message: str) -> None:
    written(cluster, RoutingTable.modulo(4))
    catalog = generations.load_catalog(cluster, "shop")
    with pytest.raises(ConfigError, match=message):
        generations.target_routing(catalog, **asked)  # type: ignore[arg-type]


def test_requests_become_routing_tables(cluster: MemoryCluster) -> None:
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

    def shuffle(self, send: Any, senders: Any, receive: Any, receivers: Any, on_done: Any = None) -> Any:
        if receive is not write_slice:
            raise Stopped
        return super().shuffle(send, senders, receive, receivers, on_done)


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
