"""The pipeline that the commit benchmarks run: numbers, re-keyed, counted per key and minute."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import stateflow as sf
from stateflow.changelog.eventual import Extents
from stateflow.clock import SystemClock
from stateflow.config import CommitMode, Guarantee
from stateflow.lab.costs.running import Stopwatch, Took, drained_worker, logged_state
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.runtime.opening.opening import Opener
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.store.resources import RocksResources
from stateflow.testing.broker import open_test_broker

T = TypeVar("T")

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


def arguments(doc: str, *, rounds: int, commit_interval_seconds: float) -> argparse.Namespace:
    """The command line that the commit benchmarks share."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--commit-interval", type=float, default=commit_interval_seconds, help="seconds")
    parser.add_argument("--broker", help="embedded (default), docker, or host:port")
    return parser.parse_args()


Measure = Callable[[KafkaCluster, Variant, int, Path], T]
"""Runs a variant in a round, with a directory for its state."""


def in_turns(
    given: argparse.Namespace, variants: Sequence[Variant], minutes: int, measure: Measure[T]
) -> list[dict[str, T]]:
    """What was measured of each variant, round by round, on a broker of their own.

    The order turns with the rounds; one more round before the first warms everything up.
    """
    rounds = []
    with open_test_broker(given.broker) as broker, tempfile.TemporaryDirectory() as folder:
        cluster = connect(broker.bootstrap)
        feed(cluster, given.records, given.keys, minutes)
        for round_ in range(-1, given.rounds):
            found = {}
            turn = round_ % len(variants)
            for variant in (*variants[turn:], *variants[:turn]):
                print(f"round {round_}: {variant.name}", file=sys.stderr)
                found[variant.name] = measure(
                    cluster, variant, round_, Path(folder) / f"{variant.name}-{round_}"
                )
            if round_ >= 0:
                rounds.append(found)
        cluster.close()
    return rounds


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
        tasks = self.wiring().tasks()
        return logged_state(self._cluster, (log for task in tasks for log in task.changelogs.values()))

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
