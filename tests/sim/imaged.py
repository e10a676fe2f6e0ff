"""One machine of the counting application: real worker, real databases, images in a directory, the memory log."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.checkpoint.progress import Progress
from stateflow.clock import ManualClock, SystemClock
from stateflow.config import Guarantee
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.imaging import Imaging
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.resources import RocksResources
from tests.sim.counting import APP, OUTPUT, SOURCE, STORE, number_of, topology

WORDS = b"to be or not to be that is the question to be or".split() * 20
TASKS = ["number-0", "number-1"]
WAIT_SECONDS = 60


class Machine:
    """A cluster, and the worker, disk and object store of one machine."""

    def __init__(self, folder: Path, *, trim: bool = False, guarantee: Guarantee = "exactly-once") -> None:
        self.clock = ManualClock(SystemClock().now_ms())  # as files in the object store have their times
        self.cluster = MemoryCluster(clock=self.clock)
        self.cluster.create([TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 2)])
        self.place = folder / "images"
        self.guarantee = guarantee
        self.settings = WorkerSettings(
            state_dir=folder / "state",
            commit_interval_seconds=0,
            poll_records_max=5,
            poll_timeout_seconds=0,
            restore_threads=0,
            flush_interval_seconds=0.1,
            images=str(self.place),
            image_interval_seconds=600,
            images_kept=2,
            trim=trim,
            member="w0",
        )
        self.prepare()
        self.restored: dict[str, int] = {}
        self.fed: Counter[bytes] = Counter()

    def prepare(self) -> None:
        """What every start of a worker does first."""
        self.wiring = prepare(
            self.cluster, topology(), self.guarantee, 2, self.clock, trim_to=self.settings.trim_to
        )

    def feed(self, words: list[bytes]) -> None:
        writer = self.cluster.writer()
        for index, word in enumerate(words):
            writer.send(SOURCE, None, word, partition=index % 2, timestamp_ms=index)
        writer.commit()
        writer.close()
        self.fed.update(words)

    def run(self, done: Callable[[], bool] = lambda: True, objects: DirectoryObjects | None = None) -> None:
        """Run a worker until the input is processed and ``done``; then commit and close it."""
        self.restored = {}
        deadline = time.monotonic() + WAIT_SECONDS
        with Imaging(
            self.cluster, objects or DirectoryObjects(self.place), self.settings, self.clock
        ) as imaging:
            opener = imaging.opener(rocks_opener(self.cluster, self.settings, RocksResources(), self.clock))
            worker = Worker(self.cluster, self.wiring, opener, self.settings, self.clock, self)
            while len(worker.tasks) < 4 or not is_drained(self.cluster, self.wiring.catalog) or not done():
                assert time.monotonic() < deadline, "the worker does not come to an end"
                worker.step()
                self.clock.advance(ms=10)
            worker.stop()
            worker.run()

    def lose(self) -> None:
        shutil.rmtree(self.settings.state_dir)

    def images(self, task: str) -> TaskImages:
        return TaskImages(DirectoryObjects(self.place), APP, 0, task, self.clock)

    def have_images(self, count: int) -> Callable[[], bool]:
        """Tells whether every stateful task has that many images."""
        return lambda: all(len(self.images(task).names()) == count for task in TASKS)

    def state(self) -> dict[bytes, int]:
        """Word → count, on the disks of all tasks."""
        found: dict[bytes, int] = {}
        for task in self.wiring.tasks():
            if task.changelogs:
                stores = rocks_opener(self.cluster, replace(self.settings, images=None), RocksResources())(
                    task, lambda: False
                )
                found |= {key: number_of(value) for key, value in stores.reader(STORE).scan()}
                stores.close()
        return found

    # --- what the worker tells ---

    def on_restore(self, task: str, progress: Progress) -> None:
        self.restored[task] = progress.slots_total

    def on_restore_stopped(self, task: str) -> None: ...

    def on_running(self, task: str) -> None: ...

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None: ...

    def on_released(self, task: str) -> None: ...
