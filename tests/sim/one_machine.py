"""A cluster in memory and the disks of one machine, on which workers live and die at a planned call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from stateflow.catalog.model import Guarantee
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.operators.topology.topology import Topology
from stateflow.record import Record, TopicPartition
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.observing import WorkerObserver
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.sim.crashing import STORE_CALLS, Crash, CrashingCluster, CrashPlan, Watched

STEPS_MAX = 500
SETTINGS = WorkerSettings(
    state_dir=Path("unused"),
    commit_interval_seconds=0,
    poll_records_max=7,
    poll_timeout_seconds=0,
    slice_records_first=7,
    restore_threads=0,
    flush_interval_seconds=0,
    member="w0",
)


class OneMachine:
    """One application on it: its topics created, its catalog written."""

    def __init__(
        self,
        topology: Topology,
        guarantee: Guarantee,
        topics: Sequence[TopicSpec],
        partitions: int,
        now_ms: int = 1_000_000,
    ) -> None:
        self.guarantee = guarantee
        self.settings = SETTINGS
        self.clock = ManualClock(now_ms)
        self.cluster = MemoryCluster(clock=self.clock)
        self.disks: dict[str, MemoryTaskStores] = {}
        self.cluster.create(topics)
        self.wiring = prepare(self.cluster, topology, guarantee, partitions, self.clock)

    def begin_anew(self, partitions: int) -> None:
        """Its next workers run the generation that is active now, and find nothing on the disks."""
        self.wiring = prepare(self.cluster, self.wiring.topology, self.guarantee, partitions, self.clock)
        self.disks.clear()

    def feed_topic(self, topic: str, rows: Sequence[tuple[bytes, int]], partitions: int) -> None:
        """Values with their times, dealt out to the partitions in turn."""
        writer = self.cluster.writer()
        for index, (value, at_ms) in enumerate(rows):
            writer.send(topic, None, value, partition=index % partitions, timestamp_ms=at_ms)
        writer.commit()
        writer.close()

    def worker(self, plan: CrashPlan, observer: WorkerObserver | None = None) -> Worker:
        """A worker that dies as planned."""

        def open_stores(wiring: TaskWiring, _cancelled: object) -> object:
            names = [store.name for store in wiring.stage.stores]
            disk = self.disks.setdefault(wiring.id, MemoryTaskStores(names, self.clock))
            return Watched(disk, plan, STORE_CALLS)

        cluster = CrashingCluster(self.cluster, plan)
        return Worker(cluster, self.wiring, open_stores, self.settings, self.clock, observer)  # type: ignore[arg-type]

    def one_life(self, plan: CrashPlan, turns: int = 0) -> None:
        """A worker's life: to the end of the input, some turns more, and a clean stop."""
        worker = self.worker(plan)
        self.run_to_the_end(worker)
        for _ in range(turns):
            worker.step()
        worker.stop()
        worker.run()

    def live_through(self, plan: CrashPlan, *, power_cut: bool) -> None:
        """A life as planned; where that ends in a crash, another goes on from what it left."""
        try:
            self.one_life(plan)
        except Crash:
            if power_cut:
                self.power_cut()
            self.one_life(CrashPlan())

    def set(self, **settings: float) -> None:
        """Change how its workers behave."""
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]

    def run_to_the_end(self, worker: Worker) -> None:
        """Turn the loop until the input is processed and committed."""
        for _ in range(STEPS_MAX):
            worker.step()
            self.clock.advance(ms=10)
            if self.is_at_the_end(worker):
                return
        raise AssertionError("the worker does not come to an end")

    def is_at_the_end(self, worker: Worker) -> bool:
        """True once the input is processed and committed, and no task is being opened."""
        return is_drained(self.cluster, self.wiring.catalog) and not worker.starting

    def longest_gap_seconds(
        self, worker: Worker, committed: Callable[[], object], is_done: Callable[[], bool], *, loop_ms: int
    ) -> float:
        """Turn the loop until it is done; the longest time in which what was committed stayed the same."""
        longest, before, since = 0.0, committed(), self.clock.monotonic_seconds()
        while not is_done():
            worker.step()
            self.clock.advance(ms=loop_ms)
            if (now := committed()) != before:
                longest = max(longest, self.clock.monotonic_seconds() - since)
                before, since = now, self.clock.monotonic_seconds()
        return longest

    def power_cut(self) -> None:
        """Whatever was not flushed is gone."""
        for disk in self.disks.values():
            disk.crash()

    def read(self, topic: str) -> list[Record]:
        """Everything committed to a topic, by partition and offset."""
        info = self.cluster.describe([topic])[topic]
        partitions = [TopicPartition(topic, p) for p in range(info.partitions)]
        ranges = self.cluster.ranges(partitions)
        reader = self.cluster.reader()
        reader.assign({p: ranges[p].offset_first for p in partitions})
        records: list[Record] = []
        while any(reader.position(p) < ranges[p].offset_next for p in partitions):
            for batch in reader.read(1000, 0):
                records += batch.records()
        return records
