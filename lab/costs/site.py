"""One type of state in one run, on a real broker and real RocksDB: its application, its disk, its images."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import stateflow as sf
from stateflow.catalog.model import Catalog, RoutingEntry, StoreEntry
from stateflow.checkpoint.image_making import create_image
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob, jobs_of
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.clock import SystemClock
from stateflow.lab.costs.kinds import KEYS, StateKind, application
from stateflow.lab.costs.result import Cost, Run
from stateflow.lab.costs.running import Stopwatch, Took, drained_worker, logged_state
from stateflow.log.base import Cluster, TopicSpec
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare
from stateflow.scale.engine import InProcess
from stateflow.scale.generation import load_catalog
from stateflow.scale.start import start
from stateflow.state.layout import routing_key
from stateflow.state.merging import StateMerge
from stateflow.state.view import StoreView
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

FIRST_MS = 1_704_067_200_000
PARTITIONS = 2
MOVED_TO = 3
FEED_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class CostOptions:
    """How much is measured. ``runs`` repeats everything; ``only`` names the types, all when empty."""

    updates: int = 200_000
    queries: int = 2_000
    runs: int = 3
    only: tuple[str, ...] = ()


def per(took: Took, operations: int) -> Cost:
    """The cost of one of so many operations."""
    return Cost(1e6 * took.cpu_seconds / operations, 1e6 * took.seconds / operations)


class CostSite:
    """Measures one type of state; a context, which leaves nothing on the broker."""

    def __init__(
        self, cluster: Cluster, kind: StateKind, number: int, options: CostOptions, folder: Path
    ) -> None:
        self._cluster = cluster
        self._kind = kind
        self._options = options
        self._clock = SystemClock()
        self._app_options = sf.AppOptions(
            state_dir=folder / "state", partitions=PARTITIONS, idle_seconds=0.2, restore_threads=1
        )
        self._app, self._source = application(kind, number, self._app_options)
        self._objects = DirectoryObjects(folder / "images")
        self._fed = 0

    def __enter__(self) -> Self:
        config = {"retention.ms": "-1"}
        self._cluster.create([TopicSpec(self._source.name, PARTITIONS, config=config)])
        self._feed(self._options.updates, KEYS)
        return self

    def __exit__(self, *_: object) -> None:
        own = [topic for topic in self._cluster.list_topics() if topic.startswith(f"{self._app.id}-")]
        self._cluster.delete(own)

    def measure(self) -> Run:
        """All four costs, in the order in which a life brings them."""
        update = self.update()
        changelogs = [changelog for job in self._jobs() for changelog in job.changelogs.values()]
        records, size_bytes = logged_state(self._cluster, changelogs)
        query, merge, entries = self._reading()
        seconds, first_bytes = self._checkpoint()
        self._feed(KEYS // 100, KEYS // 100)  # one key in a hundred changes
        self._run()
        _, delta_bytes = self._checkpoint()
        return Run(
            update=update,
            changelog_records=records / self._options.updates,
            changelog_bytes=size_bytes / self._options.updates,
            query=query,
            entries=entries,
            repartition=self._repartition(entries),
            merge=merge,
            checkpoint_seconds=seconds,
            checkpoint_bytes=first_bytes,
            delta_bytes=delta_bytes,
        )

    def update(self) -> Cost:
        """From the first running task to the end of the input, by one worker in this process."""
        return per(self._run(), self._options.updates)

    def _feed(self, records: int, keys: int) -> None:
        """Numbers of random keys and elements, a millisecond apart."""
        draw = random.Random(self._fed)
        with closing(self._cluster.writer()) as writer:
            for first in range(0, records, FEED_RECORDS):
                count = min(FEED_RECORDS, records - first)
                numbers = [draw.randrange(1 << 20) * KEYS + draw.randrange(keys) for _ in range(count)]
                writer.send_many(
                    self._source.name,
                    [None] * count,
                    [sf.Integer.encode(number) for number in numbers],
                    partitions=[row % PARTITIONS for row in range(count)],
                    timestamps_ms=[FIRST_MS + self._fed + row for row in range(count)],
                )
                writer.commit()
                self._fed += count

    def _run(self) -> Took:
        options = self._app_options
        topology = self._app.topology()
        wiring = prepare(self._cluster, topology, options.guarantee, options.partitions, self._clock)
        with drained_worker(self._cluster, wiring, worker_settings(options)) as (_, took):
            return took

    def _reading(self) -> tuple[Cost, Cost | None, int]:
        """Per key: a query, and a merge of its state with itself; and how many entries there are."""
        entry = self._entry()
        views, readers = [], []
        with self._open() as opened:
            for stores in opened:
                readers.append(stores.reader(entry.name))
                views.append(StoreView(entry, readers[-1]))
            entries = sum(1 for reader in readers for _ in reader.scan())
            wanted = random.Random(3).choices(range(KEYS), k=self._options.queries)
            watch = Stopwatch()
            found = sum(view.get(key) not in (None, 0) for key in wanted for view in views)
            query = per(watch.took(), len(wanted))
            assert found, "the keys that are asked for are those that were written"
            merge = self._merging(entry, [dict(reader.scan()) for reader in readers])
        return query, merge, entries

    def _merging(self, entry: StoreEntry, contents: list[dict[bytes, bytes]]) -> Cost | None:
        by_key: dict[bytes, dict[bytes, bytes]] = {}
        for content in contents:
            for key, value in content.items():
                by_key.setdefault(routing_key(entry.layout, key), {})[key] = value
        merge = StateMerge(entry, self._app.topology().merges.get(entry.name))
        if not merge.is_defined:
            return None
        watch = Stopwatch()
        for key, entries in by_key.items():
            merge.merge(key, entries, entries)
        return per(watch.took(), len(by_key))

    def _checkpoint(self) -> tuple[float, int]:
        """Seconds and bytes of an image of every task with state."""
        seconds, size_bytes = 0.0, 0
        jobs = self._jobs()
        with self._open() as opened:
            for job, stores in zip(jobs, opened, strict=True):
                watch = Stopwatch()
                images = TaskImages(self._objects, self._app.id, 0, job.task, self._clock)
                published = create_image(stores, images, job.changelogs, job.topic_ids, {})
                assert published is not None, "the task has written state"
                seconds += watch.took().seconds
                size_bytes += published.bytes_uploaded_total
        return seconds, size_bytes

    def _repartition(self, entries: int) -> Cost:
        routing = RoutingEntry(kind="modulo", partitions=MOVED_TO)
        watch = Stopwatch()
        start(self._cluster, self._app.id, routing, InProcess(self._cluster), self._clock)
        return per(watch.took(), entries)

    # --- what is there -----------------------------------------------------------------------------------

    def _catalog(self) -> Catalog:
        return load_catalog(self._cluster, self._app.id)

    def _entry(self) -> StoreEntry:
        assert self._kind.store is not None, "the baseline keeps nothing"
        return self._catalog().stores[self._kind.store]

    def _jobs(self) -> list[RestoreJob]:
        return jobs_of(self._catalog(), self._cluster.cluster_id, self._app_options.state_dir)

    @contextmanager
    def _open(self) -> Iterator[list[RocksTaskStores]]:
        """The local stores of all tasks, opened as a worker opens them."""
        resources = RocksResources()
        opened = [RocksTaskStores.open(job.directory, job.changelogs, resources) for job in self._jobs()]
        try:
            yield opened
        finally:
            for stores in opened:
                stores.close()
