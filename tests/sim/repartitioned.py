"""A repartition of an application whose content is known, and what must hold after it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from stateflow.catalog.model import RoutingEntry
from stateflow.clock import ManualClock
from stateflow.lab.applications.written import STORES, WrittenApp
from stateflow.log.base import Cluster
from stateflow.routing import RoutingTable
from stateflow.scale.engine import InProcess
from stateflow.scale.settings import RangeSettings, ScaleSettings
from stateflow.scale.start import Outcome, start
from stateflow.state.layout import index_bytes, prefixed_key, routing_key, window_key

SMALL_CHUNKS = ScaleSettings(
    chunk_records_max=7,
    audit_keys_max=50,
    ranges=RangeSettings(slots_min=10, slots_max=30, memory_bytes_max=3_000),
)
HEADERS = (("trace", b"abc"),)


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
