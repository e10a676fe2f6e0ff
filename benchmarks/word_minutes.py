"""The pipeline that the commit benchmarks run: numbers, re-keyed, counted per key and minute."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import stateflow as sf
from stateflow.changelog.eventual import Extents
from stateflow.changelog.format import is_reserved
from stateflow.clock import SystemClock
from stateflow.config import CommitMode, Guarantee
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.reading import read_range
from stateflow.runtime.launch import rocks_opener
from stateflow.runtime.opening import Opener
from stateflow.runtime.prepare import prepare
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.wiring import Wiring
from stateflow.store.resources import RocksResources
from stateflow.testing.costs.running import Stopwatch, Took, drained_worker

SOURCE = "bench-numbers"
PARTITIONS = 2
FIRST_MS = 1_704_067_200_000
_FEED_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the pipeline."""

    name: str
    guarantee: Guarantee = "exactly-once"
    commit_mode: CommitMode = "standard"
    changelog: sf.Eventual | None = None


def feed(cluster: Cluster, records: int, keys: int, minutes: int) -> None:
    """The input of all variants: numbers of random keys, spread evenly over event time."""
    cluster.delete([SOURCE])
    cluster.create([TopicSpec(SOURCE, PARTITIONS, config={"retention.ms": "-1"})])
    draw = random.Random(5)
    with closing(cluster.writer()) as writer:
        for first in range(0, records, _FEED_RECORDS):
            rows = range(first, min(records, first + _FEED_RECORDS))
            writer.send_many(
                SOURCE,
                [None] * len(rows),
                [sf.Integer.encode(draw.randrange(keys)) for _ in rows],
                partitions=[row % PARTITIONS for row in rows],
                timestamps_ms=[FIRST_MS + row * minutes * 60_000 // records for row in rows],
            )
            writer.commit()


class WordMinutes:
    """One application of one variant in one round."""

    def __init__(
        self, cluster: Cluster, variant: Variant, round_: int, folder: Path, commit_interval_seconds: float
    ) -> None:
        self._cluster = cluster
        self._options = sf.AppOptions(
            state_dir=folder,
            partitions=PARTITIONS,
            guarantee=variant.guarantee,
            commit_mode=variant.commit_mode,
            commit_interval_seconds=commit_interval_seconds,
        )
        self.app = sf.App(f"bench-{variant.name}-{round_}", options=self._options)
        counts = self.app.topic(
            f"{self.app.id}-counts", key=sf.WindowedKey(sf.Integer, 60_000), value=sf.Integer
        )
        numbers = self.app.topic(SOURCE, value=sf.Integer)
        window = sf.Tumbling(timedelta(minutes=1))
        (
            self.app.stream(numbers)
            .key_by(lambda number: number, name="by-number", key=sf.Integer)
            .window(window, emit="on_close", changelog=variant.changelog)
            .count(name="per-minute")
            .to(counts)
        )
        cluster.create([TopicSpec(counts.name, PARTITIONS)])

    def wiring(self) -> Wiring:
        """Topics and catalog, made when they are not there."""
        options = self._options
        topology = self.app.topology()
        return prepare(self._cluster, topology, options.guarantee, options.partitions, SystemClock())

    def run(self) -> tuple[Took, list[Extents]]:
        """The whole input by one worker, which then dies; and what its eventual changelogs lack at that moment."""
        with drained_worker(self._cluster, self.wiring(), worker_settings(self._options)) as (worker, took):
            changelogs = [task.context.eventual_changelogs.values() for task in worker.tasks.values()]
            return took, [changelog.extents for several in changelogs for changelog in several]

    def logged(self) -> tuple[int, int]:
        """State records in the changelogs, and the bytes of their keys and values."""
        records = size_bytes = 0
        for wiring in self.wiring().tasks():
            for changelog in wiring.changelogs.values():
                log = self._cluster.ranges([changelog])[changelog]
                for batch in read_range(self._cluster, changelog, log):
                    for key, value in zip(batch.keys, batch.values, strict=True):
                        if key is not None and not is_reserved(key):
                            records += 1
                            size_bytes += len(key) + len(value or b"")
        return records, size_bytes

    def recover(self) -> Took:
        """Opening the stateful tasks on an empty disk, one after the other: restore, and replay where needed."""
        shutil.rmtree(self._options.state_dir, ignore_errors=True)
        settings = worker_settings(self._options)
        opener = Opener(
            self._cluster, rocks_opener(self._cluster, settings, RocksResources()), settings, SystemClock()
        )
        watch = Stopwatch()
        for wiring in self.wiring().tasks():
            if wiring.changelogs:
                opener.open(wiring, lambda: False).task.abandon()
        return watch.took()

    def delete(self) -> None:
        """Take its topics off the broker."""
        prefix = f"{self.app.id}-"
        self._cluster.delete([topic for topic in self._cluster.list_topics() if topic.startswith(prefix)])
