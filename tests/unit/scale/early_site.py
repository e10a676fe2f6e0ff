"""An application with a history made from one seed, restored newest first and in order, and what both gave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic
from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import InputPosition
from stateflow.checkpoint.jobs import RestoreJob, committed_ends, jobs_of
from stateflow.checkpoint.recovery import Outcome, run_job
from stateflow.clock import ManualClock
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.base import TopicInfo, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.routing import RoutingTable
from stateflow.scale.early.ranges import RangeSizes
from stateflow.scale.early.restore import EarlyRestore, Watchers
from stateflow.scale.engine import InProcess
from stateflow.state.layout import prefixed_key, window_key
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

SMALL = RangeSizes(slots_first=16, slots_max=64, bytes_max=4_000)
PARTITIONS = 2
KEYS = [f"key-{number}" for number in range(60)]
HOUR_MS = 3_600_000
Content = Mapping[str, tuple[object, list[tuple[bytes, bytes]]]]


class KnownCluster(MemoryCluster):
    """Has the ids that another process gives the same cluster: a state directory knows by them whose it is."""

    def __init__(self, clock: ManualClock, seed: int) -> None:
        super().__init__(clock)
        self._broker.cluster_id = f"cluster-{seed}"

    def create(self, topics: Iterable[TopicSpec]) -> dict[str, TopicInfo]:
        made = super().create(topics)
        for name, topic in self._broker.topics.items():
            topic.topic_id = f"{name}-of-{self.cluster_id}"
        return self.describe(made)


class EarlySite:
    """The application ``shop``; its commits, aborted and torn ones among them, are told by a seed."""

    def __init__(self, seed: int, partitions: int = PARTITIONS) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock(1_000 * HOUR_MS)
        self.cluster = KnownCluster(self.clock, seed)
        self.routing = RoutingTable.modulo(partitions)
        self._app = WrittenApp(self.cluster, "shop", self.routing)
        self._app.create()
        self._sequence = 0
        self._keys: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        for key in map(str.encode, KEYS):
            self._keys[self.routing.partition_of(key)].append(key)

    @property
    def catalog(self) -> Catalog:
        return ControlTopic(self.cluster, "shop").load()

    def commits(self, count: int) -> None:
        """So many commits of both tasks; a third of them are aborted, with the records of later ones beside."""
        for _ in range(count):
            for partition in range(self.routing.partitions):
                self.commit(partition, how=self.rng.choice(("committed", "committed", "aborted")))

    def commit(self, partition: int, how: str = "committed") -> None:
        """One commit: changes of all stores, then commit records. A ``torn`` one is visible without its records."""
        writer = self.cluster.writer(f"shop-{partition}")
        writer.begin()
        for store in ("totals", "hourly", "recent"):
            changes = self.changes(partition, store)
            for key, value in changes:
                writer.send(changelog_topic("shop", store), key, value, partition=partition)
            if how != "torn":
                self._sequence += how == "committed" and store == "totals"
                record = CommitRecord(0, self._sequence, len(changes), InputPosition())
                writer.send(changelog_topic("shop", store), COMMIT_KEY, record.encode(), partition=partition)
        (writer.abort if how == "aborted" else writer.commit)()
        writer.close()

    def changes(self, partition: int, store: str) -> list[tuple[bytes, bytes | None]]:
        own = self.keys_of(partition)
        some = self.rng.sample(own, min(len(own), self.rng.randrange(1, 12)))
        return [(self._store_key(store, key), self._value()) for key in some]

    def keys_of(self, partition: int) -> list[bytes]:
        return self._keys[partition]

    def _store_key(self, store: str, key: bytes) -> bytes:
        match store:
            case "hourly":
                return window_key(key, self.rng.randrange(3) * HOUR_MS)
            case "recent":
                return prefixed_key(key, self.rng.randrange(4).to_bytes(8))
            case _:
                return key

    def _value(self) -> bytes | None:
        return None if self.rng.random() < 0.3 else b"%d" % self.rng.randrange(10**6)

    # --- restoring ------------------------------------------------------------------------------------

    def jobs(self, state_dir: Path, images: str | None = None) -> list[RestoreJob]:
        found = jobs_of(self.catalog, self.cluster.cluster_id, state_dir, images=images)
        return [replace(job, ends=committed_ends(self.cluster, job, self.clock)) for job in found]

    def in_order(self, state_dir: Path, images: str | None = None) -> dict[str, Content]:
        """Restored in the ordinary way."""
        for job in self.jobs(state_dir, images):
            run_job(self.cluster, job, RocksResources(), lambda _: None, lambda: False, self.clock)
        return self.content(state_dir)

    def early(self, state_dir: Path, images: str | None = None, lanes: int = 1) -> EarlyRestore:
        """A restore newest first that was not begun."""
        return EarlyRestore(
            self.cluster,
            self.catalog,
            self.jobs(state_dir, images),
            InProcess(self.cluster, lanes),
            self.clock,
            SMALL,
        )

    def content(self, state_dir: Path) -> dict[str, Content]:
        """Everything in the databases of a state directory, positions with their times included."""
        return {job.task: self._content(job) for job in self.jobs(state_dir)}

    def _content(self, job: RestoreJob) -> Content:
        stores = RocksTaskStores.open(job.directory, job.changelogs, RocksResources(), self.clock)
        try:
            return {
                name: (_exactly(stores, name), [*stores.reader(name).scan()])
                for name in sorted(job.changelogs)
            }
        finally:
            stores.close()


def _exactly(stores: RocksTaskStores, store: str) -> object:
    position = stores.position(store)
    return None if position is None else (position.topic_id, position.offset_next, position.applied_ms)


def run_with(restore: EarlyRestore, each_turn: Callable[[], None]) -> list[Outcome]:
    """Run a restore, doing something at each of its turns."""
    return restore.run(Watchers(report=lambda _: each_turn()))
