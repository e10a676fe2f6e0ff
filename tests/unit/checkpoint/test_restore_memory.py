"""What a restore has read and not written yet is bounded, over all stores of its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stateflow.checkpoint.planner import plan_task
from stateflow.checkpoint.restore import Restoration, RestoreSettings
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.store.base import Change, StorePosition
from stateflow.store.memory import MemoryTaskStores

STORES = ("large", "small")
BYTES_MAX = 40_000
RECORDS_PER_STEP = 20


class CountingStores(MemoryTaskStores):
    """Counts the epochs that are written."""

    writes = 0

    def apply(self, epoch: Mapping[str, Sequence[Change]], positions: Mapping[str, StorePosition]) -> None:
        self.writes += 1
        super().apply(epoch, positions)


def logged(changes: Mapping[str, Sequence[Change]]) -> tuple[MemoryCluster, CountingStores, Restoration]:
    """A restore of these changelogs, not begun."""
    clock = ManualClock(1_000_000)
    cluster = MemoryCluster(clock)
    logs = {store: TopicPartition(f"app-{store}-changelog", 0) for store in STORES}
    made = cluster.create(
        [TopicSpec(log.topic, 1, config={"cleanup.policy": "compact"}) for log in logs.values()]
    )
    writer = cluster.writer()
    for store, rows in changes.items():
        for key, value in rows:
            writer.send(logs[store].topic, key, value, partition=0)
    writer.commit()
    stores = CountingStores(STORES, clock)
    ids = {topic: info.topic_id for topic, info in made.items()}
    plan = plan_task(cluster, "main-0", logs, ids, stores, clock)
    settings = RestoreSettings(epoch_bytes_max=BYTES_MAX, load_entries_min=1_000_000)
    return cluster, stores, Restoration(cluster, plan, stores, clock, settings)


def run(restoration: Restoration) -> int:
    """Restore; the most that was pending between two steps."""
    most = 0
    while not restoration.done:
        restoration.step(RECORDS_PER_STEP)
        most = max(most, sum(part.pending.held_bytes for part in restoration._parts.values()))
    return most


def test_what_is_pending_of_all_stores_keeps_to_the_bound() -> None:
    changes: dict[str, list[Change]] = {
        "large": [(b"%04d" % number, b"v" * 2_000) for number in range(300)],
        "small": [(b"%04d" % number, b"v") for number in range(1_000)],
    }
    _, stores, restoration = logged(changes)
    assert run(restoration) <= BYTES_MAX
    for store, rows in changes.items():
        assert list(stores.reader(store).scan()) == rows


def test_records_that_were_replaced_do_not_count() -> None:
    """A few keys that are written over and over fit into memory: writing them each time would be for nothing."""
    rows = [(b"%02d" % (number % 10), b"v" * 100 + b"%d" % number) for number in range(5_000)]
    _, stores, restoration = logged({"small": rows})
    assert run(restoration) <= BYTES_MAX
    assert dict(stores.reader("small").scan()) == dict(rows)
    assert stores.writes == 1, "at the end, and not before"
