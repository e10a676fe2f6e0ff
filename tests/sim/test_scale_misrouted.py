"""A mover that gives one key in a thousand to a wrong partition is found out, whichever part of it is wrong."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from stateflow.catalog.model import KeyLayout
from stateflow.clock import ManualClock
from stateflow.errors import AuditFailed
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.memory import MemoryCluster
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale.application_merge import ApplicationMerge
from stateflow.scale.engine import InProcess
from stateflow.scale.layout import routing_keys
from stateflow.scale.start import start
from stateflow.state.layout import routing_key, window_key

KEYS = [f"key-{number}".encode() for number in range(3_000)]
AFTER = RoutingTable.modulo(6)


def is_unlucky(key: bytes) -> bool:
    """One key in a thousand."""
    return zlib.crc32(key) % 1_000 == 7


def elsewhere(key: bytes) -> bytes:
    """A key that belongs to another partition, of four and of six."""
    others = (key + b"!" * more for more in count(1))
    tables = (RoutingTable.modulo(4), AFTER)
    return next(
        other for other in others if all(t.partition_of(other) != t.partition_of(key) for t in tables)
    )


def misrouting(real: Callable[..., list[int]]) -> Callable[..., list[int]]:
    """``RoutingTable.partitions_of``, wrong for the unlucky."""

    def partitions_of(table: RoutingTable, keys: Sequence[bytes]) -> list[int]:
        found = real(table, keys)
        return [
            (at + 1) % table.partitions if is_unlucky(key) else at
            for key, at in zip(keys, found, strict=True)
        ]

    return partitions_of


def miscut(real: Callable[..., Sequence[bytes]]) -> Callable[..., Sequence[bytes]]:
    """``routing_keys``, wrong for the unlucky."""

    def wrong(layout: Any, keys: Sequence[bytes]) -> Sequence[bytes]:
        return [elsewhere(key) if is_unlucky(key) else key for key in real(layout, keys)]

    return wrong


def for_many(patch: pytest.MonkeyPatch) -> None:
    """The fault is in the routing of many keys at once, which running tasks use with large batches only."""
    patch.setattr(RoutingTable, "partitions_of", misrouting(RoutingTable.partitions_of))


def in_the_mover(patch: pytest.MonkeyPatch) -> None:
    """The fault is in what the mover takes for the routing key."""
    patch.setattr("stateflow.scale.state_move.routing_keys", miscut(routing_keys))


def in_the_merge(patch: pytest.MonkeyPatch) -> None:
    """The fault is in the choice of the keys that two applications have in a partition."""
    patch.setattr("stateflow.scale.keyed.routing_keys", miscut(routing_keys))


def written(cluster: MemoryCluster, app: str, keys: Sequence[bytes]) -> WrittenApp:
    found = WrittenApp(cluster, app, RoutingTable.modulo(4))
    found.create()
    found.write_state("totals", [(key, b"1") for key in keys])
    found.write_state("hourly", [(window_key(key, 3_600_000), b"1") for key in keys])
    found.commit_inputs(dict.fromkeys(range(4), 0))
    return found


@pytest.mark.parametrize("plant", [for_many, in_the_mover], ids=lambda plant: plant.__name__)
def test_a_key_in_a_wrong_partition_is_refused(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    assert 1 <= sum(map(is_unlucky, KEYS)) <= 6
    written(cluster, "shop", KEYS)
    plant(monkeypatch)
    with pytest.raises(AuditFailed, match="differ"):
        start(cluster, "shop", AFTER.entry(), InProcess(cluster), ManualClock())
    catalog = generations.load_catalog(cluster, "shop")
    assert (catalog.active.generation, catalog.generations[1].state) == (0, "preparing")


def test_queues_are_audited_alike(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    app = written(cluster, "shop", KEYS[:1])
    app.write_unread([(key, b"unread", 1_000) for key in KEYS])
    for_many(monkeypatch)
    with pytest.raises(AuditFailed, match="repartition"):
        start(cluster, "shop", AFTER.entry(), InProcess(cluster), ManualClock())


@pytest.mark.parametrize("plant", [for_many, in_the_merge], ids=lambda plant: plant.__name__)
def test_two_applications_become_one_with_every_key_in_its_place(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    written(cluster, "shop", KEYS[:1_500])
    written(cluster, "other", KEYS[1_500:])
    plant(monkeypatch)
    application_merge = ApplicationMerge("other")
    with pytest.raises(AuditFailed, match="differ"):
        start(
            cluster,
            "shop",
            RoutingTable.modulo(4).entry(),
            InProcess(cluster),
            ManualClock(),
            application_merge=application_merge,
        )
    assert generations.load_catalog(cluster, "shop").active.generation == 0


def test_without_a_fault_the_same_passes(cluster: MemoryCluster) -> None:
    app = written(cluster, "shop", KEYS)
    outcome = start(cluster, "shop", AFTER.entry(), InProcess(cluster), ManualClock())
    assert outcome.keys_total == 2 * len(KEYS)
    for store in ("totals", "hourly"):
        layout: KeyLayout = "plain" if store == "totals" else "window"
        for partition, state in app.found_state(store, 1).items():
            assert {AFTER.partition_of(routing_key(layout, key)) for key in state} <= {partition}
