"""One task, its changelog on the memory log, its database on disk and its images: what restores are planned from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from stateflow.checkpoint.decisions import Decision, decide
from stateflow.checkpoint.image_selection import images_of
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.manifest import ImageStore
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec, Writer
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.store.base import StorePosition
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

LOG = TopicPartition("app-a-changelog", 0)
OTHER = TopicPartition("app-b-changelog", 0)
CONFIG = {"cleanup.policy": "compact,delete", "delete.retention.ms": "60000"}
HOUR_MS = 3_600_000


class Scene:
    """A changelog of 100 slots over 10 keys, and a task with nothing on its disk and no images."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(1_000 * HOUR_MS)
        self.cluster = MemoryCluster(self.clock)
        self.ids: dict[str, str] = {}
        self.job = RestoreJob(
            task="main-0",
            directory=task_directory(folder / "state", "app", self.cluster.cluster_id, 0, "main-0"),
            changelogs={"a": LOG},
            topic_ids=self.ids,
        )
        self.create(LOG)
        self.write(100)

    def create(self, log: TopicPartition) -> None:
        self.ids[log.topic] = self.cluster.create([TopicSpec(log.topic, 1, config=CONFIG)])[
            log.topic
        ].topic_id

    def write(self, slots: int, log: TopicPartition = LOG) -> None:
        writer = self.cluster.writer()
        for number in range(slots):
            writer.send(log.topic, b"%d" % (number % 10), b"%d" % number, partition=0)
        writer.commit()

    def transaction(self, slots: int) -> Writer:
        """An open one."""
        writer = self.cluster.writer("task")
        writer.begin()
        for number in range(slots):
            writer.send(LOG.topic, b"%d" % number, b"?", partition=0)
        writer.flush()
        return writer

    def local(self, offset_next: int, topic_id: str | None = None, *, age_ms: int = 0, **more: int) -> None:
        """A database on the disk that stands for this."""
        stores = RocksTaskStores.open(self.job.directory, self.job.changelogs, RocksResources(), self.clock)
        applied_ms = self.clock.now_ms() - age_ms
        for store, offset in {"a": offset_next, **more}.items():
            held_id = topic_id or self.ids[self.job.changelogs[store].topic]
            stores.apply({store: [(b"k", b"v")]}, {store: StorePosition(held_id, offset, applied_ms)})
        stores.close()

    def image(self, offset_next: int, topic_id: str | None = None, *, age_ms: int = 0, **more: int) -> str:
        held = {
            store: ImageStore(
                changelog=self.job.changelogs[store].topic,
                topic_id=topic_id or self.ids[self.job.changelogs[store].topic],
                offset_next=offset,
                applied_ms=self.clock.now_ms() - age_ms,
            )
            for store, offset in {"a": offset_next, **more}.items()
        }
        (self.folder / "checkpoint").mkdir(exist_ok=True)
        self.job = replace(self.job, images=str(self.folder / "images"))
        self.clock.advance(ms=1)
        return self.images.publish(self.folder / "checkpoint", held, {}).name

    @property
    def images(self) -> TaskImages:
        return images_of(self.job, DirectoryObjects(self.folder / "images"), self.clock)

    def trim(self, offset_first: int, log: TopicPartition = LOG) -> None:
        self.cluster.trim({log: offset_first})

    def two_stores(self, slots: int) -> None:
        """A second store, whose changelog has this many slots."""
        self.create(OTHER)
        self.write(slots, OTHER)
        self.job = replace(self.job, changelogs={"a": LOG, "b": OTHER})

    def decided(self) -> list[Decision]:
        return decide(self.cluster, self.job, self.clock).rows


def both(*steps: Callable[[Scene], object]) -> Callable[[Scene], None]:
    """Several things, one after the other."""

    def arrange(scene: Scene) -> None:
        for step in steps:
            step(scene)

    return arrange


@dataclass(frozen=True)
class Case:
    """One case: what is there, what is decided for the first store, and in what words."""

    name: str
    arrange: Callable[[Scene], object]
    action: str
    sentence: str
    more: tuple[tuple[str, str], ...] = field(default=())
    """Further stores, the same."""
    image: bool = False
