"""A rebalance on a real broker while commits are in flight: they prove their membership anew, and cost no epoch.

Where that comes too late, at the end of a worker, the epoch is done again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import stateflow as sf
from stateflow import failpoints
from stateflow.clock import SystemClock
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, streams
from stateflow.log.reading import read_range
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

PARTITIONS = 4
WAIT_SECONDS = 60.0
NEVER_SECONDS = 3_600.0


class Number(sf.Operator[str, str, int]):
    """Numbers the records of each key."""

    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[int]) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.emit(self.seen.get())


class Numbering:
    """The application, and workers that run it in this process."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        name = f"amid-{uuid.uuid4().hex[:8]}"
        self.app = sf.App(name, guarantee="exactly-once")
        self.words = self.app.topic(f"{name}-in", key=sf.String, value=sf.String)
        self.numbers = self.app.topic(f"{name}-out", key=sf.String, value=sf.Json)
        self.app.operator(
            "number", source=self.app.stream(self.words, co_partitioned=True), sink=self.numbers
        )(Number)
        cluster.create([TopicSpec(topic.name, PARTITIONS) for topic in (self.words, self.numbers)])
        self.wiring = prepare(cluster, self.app.topology(), "exactly-once", PARTITIONS, SystemClock())
        self.disks: dict[str, MemoryTaskStores] = {}

    def feed(self) -> None:
        writer = self.cluster.writer()
        for partition in range(PARTITIONS):
            writer.send(self.words.name, b"key-%d" % partition, b"word", partition=partition)
        writer.commit()
        writer.close()

    def worker(self, commit_interval_seconds: float = 0.2) -> Worker:
        settings = WorkerSettings(
            state_dir=Path("in-memory"),
            commit_interval_seconds=commit_interval_seconds,
            commit_interval_min_seconds=commit_interval_seconds,
            poll_timeout_seconds=0.02,
        )
        return Worker(self.cluster, self.wiring, self._stores, settings, SystemClock())

    def inputs(self) -> list[TopicPartition]:
        return [TopicPartition(self.words.name, partition) for partition in range(PARTITIONS)]

    def committed(self) -> dict[TopicPartition, int]:
        found = self.cluster.committed(self.wiring.topology.app, self.inputs())
        return {place: at.offset_next for place, at in found.items()}

    def assert_once_each(self) -> None:
        places = [TopicPartition(self.numbers.name, partition) for partition in range(PARTITIONS)]
        # A commit is answered before its markers are written.
        wait_until(
            lambda: self.cluster.ranges(places) == self.cluster.ranges(places, stable=False), "markers"
        )
        for place, ends in self.cluster.ranges(places).items():
            batches = read_range(self.cluster, place, ends)
            assert sum(len(batch) for batch in batches) == 1, "once each"

    def _stores(self, wiring: TaskWiring, _cancelled: Callable[[], bool]) -> MemoryTaskStores:
        names = [store.name for store in wiring.stage.stores]
        return self.disks.setdefault(wiring.id, MemoryTaskStores(names, SystemClock()))


@pytest.fixture(params=[True, False], ids=["core", "plain"])
def numbering(
    request: pytest.FixtureRequest, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> Numbering:
    if not request.param:
        monkeypatch.setattr(streams, "client_core", lambda: None)
    return Numbering(cluster)


def test_commits_in_flight_outlast_a_rebalance(numbering: Numbering) -> None:
    waiting, revoked = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == "handover.revoked":
            revoked.set()
        elif point == "commit.before_offsets" and threading.current_thread().name.startswith("commit"):
            waiting.set()
            assert revoked.wait(WAIT_SECONDS), "no rebalance came"

    with closing(numbering.worker()) as first:
        wait_until(lambda: len(first.tasks) == PARTITIONS, "tasks", first.step, every_seconds=0)
        running = dict(first.tasks)
        with failpoints.handled(hold):
            numbering.feed()
            wait_until(waiting.is_set, "commits in flight", first.step, every_seconds=0)
            with closing(numbering.worker()) as second:

                def both() -> None:
                    first.step()
                    second.step()

                wait_until(lambda: bool(second.tasks), "a rebalance", both, every_seconds=0)
                kept = first.tasks
                assert kept
                assert kept == {name: running[name] for name in kept}, "none has begun anew"
                assert all(task.commits_total == 1 for task in running.values()), "what was in flight counts"
                assert not first.starting
    numbering.assert_once_each()


@pytest.mark.parametrize("is_refused", [False, True], ids=["before-the-stop", "amid-the-commits"])
def test_a_worker_that_is_stopped_amid_a_rebalance_commits_what_it_keeps(
    numbering: Numbering, is_refused: bool
) -> None:
    """Its poll thread hears nothing of the generation that its last commits meet."""
    with closing(numbering.worker(NEVER_SECONDS)) as first, ExitStack() as stack:
        wait_until(lambda: len(first.tasks) == PARTITIONS, "tasks", first.step, every_seconds=0)
        numbering.feed()
        running = first.tasks.values()
        wait_until(lambda: all(task.records_total for task in running), "words", first.step, every_seconds=0)
        others: list[Worker] = []
        lock = threading.Lock()

        def another_joins(point: str) -> None:
            """Client libraries join on threads of their own."""
            if point != "commit.after_proof":
                return
            with lock:
                if others:
                    return
                before = first._group.metadata()
                others.append(numbering.worker())
                wait_until(lambda: first._group.metadata() != before, "another generation")
                turning = threading.Thread(target=others[0].run)
                turning.start()
                stack.callback(turning.join)
                stack.callback(others[0].stop)

        if not is_refused:
            another_joins("commit.after_proof")
        first.stop()
        with failpoints.handled(another_joins):
            first.run()
        (second,) = others
        wait_until(lambda: len(second.tasks) == PARTITIONS, "all tasks")
        committed = numbering.committed
        wait_until(lambda: committed() == dict.fromkeys(numbering.inputs(), 1), "all commits")
        again = sum(task.records_total for task in second.tasks.values())
        assert again == (PARTITIONS // 2 if is_refused else 0), "only what it was given amid the commits"
    numbering.assert_once_each()
