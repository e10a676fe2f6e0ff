"""Repartition on the memory cluster: what tampers with it is noticed before anything switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stateflow.catalog.names import changelog_topic, repartition_topic, task_id, transactional_id
from stateflow.changelog.format import TOUCH_KEY
from stateflow.clock import ManualClock
from stateflow.errors import (
    AuditFailed,
    GenerationUnfinished,
    OldGenerationWritten,
    ProducerFenced,
)
from stateflow.lab.applications.written import STEP, WrittenApp
from stateflow.log.base import Cluster
from stateflow.log.memory import MemoryCluster
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale.engine import InProcess
from stateflow.scale.state_move import write_slice
from stateflow.state.layout import routing_key
from tests.sim.repartitioned import assert_everything_kept, run, written


class TamperingEngine(InProcess):
    """Spoils the new generation between the move and the audit."""

    def __init__(self, cluster: Cluster, spoil: Callable[[Cluster], None]) -> None:
        super().__init__(cluster)
        self._spoil = spoil

    def shuffle(self, send: Any, senders: Any, receive: Any, receivers: Any, on_done: Any = None) -> Any:
        results = super().shuffle(send, senders, receive, receivers, on_done)
        if receive is write_slice:
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
    """No resumption can take its records along; undone and begun anew, the change moves them with all others."""
    app = written(cluster, RoutingTable.modulo(4))
    home = RoutingTable.modulo(4).partition_of(b"key-1")
    late = TamperingEngine(
        cluster, lambda log: send(log, changelog_topic("shop", "totals"), b"key-1", b"late", home)
    )
    with pytest.raises(OldGenerationWritten, match="was written to"):
        run(cluster, RoutingTable.modulo(6).entry(), engine=late)
    assert generations.load_catalog(cluster, "shop").active.generation == 0
    with pytest.raises(OldGenerationWritten, match="scale abort"):
        run(cluster, RoutingTable.modulo(6).entry())

    generations.abort(cluster, "shop")
    run(cluster, RoutingTable.modulo(6).entry())
    app.expected["totals"][b"key-1"] = b"late"
    assert_everything_kept(app, 2, RoutingTable.modulo(6))


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
