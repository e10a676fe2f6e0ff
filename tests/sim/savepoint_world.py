"""A three-stage application run by two workers on a memory log, in which savepoints are made and restored.

Words are re-keyed by themselves and numbered; each number goes on, re-keyed by the word's first letter, and is counted
there. What a savepoint must hold can be said of it without running anything: every word before the offset vector is
in exactly one place.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Guarantee, StoreEntry
from stateflow.checkpoint.locations import AllowedLocations
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.checkpoint.queues import read_records
from stateflow.checkpoint.savepoints import Savepoint, SavepointObjects
from stateflow.clock import ManualClock, SystemClock
from stateflow.lab.applications.untimed import UntimedPipeline
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.record import RecordBatch
from stateflow.runtime.opening.inline import InlineExecutor
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.savepoint_participant import SavepointParticipant
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.prepare import expected_catalog, prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.savepoint.create import CreateSettings, create
from stateflow.savepoint.restore import Restored, RestoreSettings, restore
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from tests.sim.counting import Rekey

APP = "chain"
SOURCE = "words"
OUTPUT = "letters"
SOURCE_PARTITIONS = 2
PARTITIONS = 3
STEPS_MAX = 2_000
_COUNT = struct.Struct(">q")


class _Counting(UntimedPipeline):
    """Counts its keys in one store; what is done with a count is the subclass's."""

    store = ""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def process(self, batch: RecordBatch) -> None:
        store = self._context.store(self.store)
        counts = []
        for key in batch.keys:
            before = store.get(key)
            count = _COUNT.pack((_COUNT.unpack(before)[0] if before else 0) + 1)
            store.put(key, count)
            counts.append(count)
        self.done(batch, counts)

    def done(self, batch: RecordBatch, counts: list[bytes]) -> None:
        raise NotImplementedError


class Number(_Counting):
    """Counts each word, and passes every one on by its first letter."""

    store = "numbers"

    def done(self, batch: RecordBatch, counts: list[bytes]) -> None:
        letters = [key[:1] for key in batch.keys]
        named = [key + b"=" + count for key, count in zip(batch.keys, counts, strict=True)]
        self._context.rekey_many("by-letter", letters, named, batch.timestamps_ms)


class Letter(_Counting):
    """Counts each letter."""

    store = "letters"

    def done(self, batch: RecordBatch, counts: list[bytes]) -> None:
        self._context.send_many(OUTPUT, batch.keys, counts, batch.timestamps_ms)


def _store(name: str, stage: str) -> StoreEntry:
    return StoreEntry(
        name=name,
        stage=stage,
        kind="value",
        layout="plain",
        key_codec={"codec": "bytes"},
        value_codec={"codec": "int64"},
    )


def topology(app: str = APP) -> Topology:
    number, letter = _store("numbers", "number"), _store("letters", "letter")
    return Topology(
        app,
        (
            Stage("rekey", (Input(SOURCE),), (), (), ("by-word",), Rekey),
            Stage("number", (Input("by-word", "rekey"),), (number,), (), ("by-letter",), Number),
            Stage("letter", (Input("by-letter", "number"),), (letter,), (OUTPUT,), (), Letter),
        ),
    )


class World:
    """A cluster, the disks of its machines, and the workers that run there now."""

    def __init__(self, folder: Path, seed: int = 0, guarantee: Guarantee = "exactly-once") -> None:
        self.folder = folder
        self.place = folder / "savepoints"
        self.random = random.Random(seed)
        self.guarantee: Guarantee = guarantee
        self.clock = ManualClock(SystemClock().now_ms())
        self.cluster = MemoryCluster(clock=self.clock)
        self.cluster.create([TopicSpec(SOURCE, SOURCE_PARTITIONS), TopicSpec(OUTPUT, 1)])
        self.disks: dict[tuple[str, int, str], MemoryTaskStores] = {}
        self.fed: list[list[bytes]] = [[] for _ in range(SOURCE_PARTITIONS)]
        self.workers: dict[str, tuple[Worker, SavepointParticipant]] = {}
        self.waiting: list[bytes] = []

    # --- input ------------------------------------------------------------------------------------

    def feed(self, words: list[bytes]) -> None:
        writer = self.cluster.writer()
        for word in words:
            partition = self.random.randrange(SOURCE_PARTITIONS)
            self.fed[partition].append(word)
            writer.send(SOURCE, None, word, partition=partition, timestamp_ms=1 + len(self.fed[partition]))
        writer.commit()
        writer.close()

    # --- workers ----------------------------------------------------------------------------------

    def wiring(self, app: str = APP) -> Wiring:
        return prepare(self.cluster, topology(app), self.guarantee, PARTITIONS, self.clock)

    def begin(self, *names: str, app: str = APP) -> None:
        wiring = self.wiring(app)
        for name in names:
            settings = WorkerSettings(
                state_dir=self.folder / "unused",
                commit_interval_seconds=0.02,
                poll_records_max=5,
                poll_timeout_seconds=0,
                restore_threads=0,
                flush_interval_seconds=0.05,
                purge_interval_seconds=0.05,
                idle_seconds=3600,
                member=name,
            )
            savepoints = SavepointParticipant(
                self.cluster,
                app,
                self.clock,
                self._folder(name),
                AllowedLocations([str(self.place)]),
                poll_seconds=0.03,
                uploads=InlineExecutor(),
                written=wiring.written,
            )
            worker = Worker(
                self.cluster, wiring, self._open_stores, settings, self.clock, savepoints=savepoints
            )
            self.workers[name] = worker, savepoints

    def _folder(self, name: str) -> Callable[[TaskWiring], Path]:
        return lambda wiring: self.folder / "checkpoints" / name / wiring.id

    def _open_stores(self, wiring: TaskWiring, _cancelled: object) -> MemoryTaskStores:
        place = (wiring.app, wiring.generation, wiring.id)
        if place not in self.disks:
            self.disks[place] = MemoryTaskStores([s.name for s in wiring.stage.stores], self.clock)
        return self.disks[place]

    def turn(self, _seconds: float = 0) -> None:
        """One turn of one worker's loop, whichever; sometimes more input arrives."""
        if self.waiting and self.random.random() < 0.5:
            self.feed([self.waiting.pop() for _ in range(min(3, len(self.waiting)))])
        worker, _ = self.workers[self.random.choice(sorted(self.workers))]
        worker.step()
        self.clock.advance(ms=self.random.choice([1, 10, 30]))

    def run(self, app: str = APP) -> None:
        """Until all input is processed, all tasks run and no task is behind a barrier that is over."""
        for _ in range(STEPS_MAX):
            self.turn()
            if self.waiting or any(worker.starting for worker, _ in self.workers.values()):
                continue
            catalog = ControlTopic(self.cluster, app).load()
            running = [task for worker, _ in self.workers.values() for task in worker.tasks.values()]
            if len(running) == len(self.wiring(app).tasks()) and is_drained(self.cluster, catalog):
                return
        raise AssertionError("the workers do not come to an end")

    def stop(self) -> None:
        for worker, savepoints in self.workers.values():
            worker.stop()
            worker.run()
            savepoints.__exit__(None, None, None)
        self.workers.clear()
        for app in (APP, "other"):
            self.cluster.end_sessions(app)

    # --- savepoints -------------------------------------------------------------------------------

    def create(
        self,
        name: str = "one",
        *,
        timeout_seconds: float = 60,
        pause: Callable[[float], None] | None = None,
        report: Callable[[int, int], None] | None = None,
    ) -> Savepoint:
        return create(
            self.cluster,
            APP,
            name,
            str(self.place),
            self.clock,
            settings=CreateSettings(timeout_seconds=timeout_seconds),
            pause=pause or (self.turn if self.workers else lambda _: None),
            report=report,
        )

    def saved(self, savepoint: Savepoint) -> SavepointObjects:
        objects = DirectoryObjects(self.place)
        return SavepointObjects(objects, savepoint.app, savepoint.name, savepoint.number, self.clock)

    def restore(self, savepoint: Savepoint, app: str = APP, **settings: object) -> Restored:
        expected = expected_catalog(self.cluster, topology(app), self.guarantee, PARTITIONS, self.clock)
        return restore(
            self.cluster,
            savepoint,
            self.saved(savepoint),
            expected,
            self.clock,
            settings=RestoreSettings(chunk_records_max=4, **settings),  # type: ignore[arg-type]
        )

    # --- what is so -------------------------------------------------------------------------------

    def state(self, app: str = APP) -> tuple[Counter[bytes], Counter[bytes]]:
        """Words and letters, as the running tasks have committed them."""
        found: dict[str, Counter[bytes]] = {"numbers": Counter(), "letters": Counter()}
        generation = ControlTopic(self.cluster, app).load().active.generation
        for (owner, number, _), disk in self.disks.items():
            for name, counts in found.items():
                if (owner, number) == (app, generation) and name in disk.names:
                    counts.update({key: _COUNT.unpack(value)[0] for key, value in disk.reader(name).scan()})
        return found["numbers"], found["letters"]

    def expected(self, offsets: list[int] | None = None) -> tuple[Counter[bytes], Counter[bytes]]:
        """Words and letters of all input, or of that before an offset vector."""
        ends = offsets or [len(words) for words in self.fed]
        words = [word for part, end in zip(self.fed, ends, strict=True) for word in part[:end]]
        return Counter(words), Counter(word[:1] for word in words)

    def contents(self, savepoint: Savepoint) -> tuple[Counter[bytes], Counter[bytes]]:
        """Words and letters that the savepoint stands for: state, and what is in flight on top of it."""
        saved, words, letters = self.saved(savepoint), Counter[bytes](), Counter[bytes]()
        with TemporaryDirectory() as scratch:
            for task in savepoint.tasks:
                if task.image is not None:
                    images = saved.images(savepoint.generation, task.task)
                    manifest = images.load(images.savepoint_name(saved.id))
                    place = TaskDirectory(Path(scratch) / task.task, Identity("a", "c", 0, task.task))
                    place.claim()
                    images.fetch(manifest, place.database)
                    stores = RocksTaskStores.open(place, manifest.stores, RocksResources())
                    for name, counts in (("numbers", words), ("letters", letters)):
                        if name in manifest.stores:
                            rows = stores.reader(name).scan()
                            counts.update({key: _COUNT.unpack(value)[0] for key, value in rows})
                    stores.close()
            for queue in savepoint.queues:
                file = Path(scratch) / "queue"
                saved.fetch_queue(queue, file)
                keys = [record.key for record in read_records(file, "t", 0)]
                if queue.step == "by-word":
                    words.update(keys)
                    letters.update(key[:1] for key in keys)
                else:
                    letters.update(keys)
        return words, letters

    def vector(self, savepoint: Savepoint) -> list[int]:
        """The offset vector, by source partition."""
        positions = {at: to for task in savepoint.tasks for at, to in task.position().offsets.items()}
        found = {at.partition: offset for at, offset in positions.items() if at.topic == SOURCE}
        return [found.get(partition, 0) for partition in range(SOURCE_PARTITIONS)]
