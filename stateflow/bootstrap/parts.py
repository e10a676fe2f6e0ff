"""One task's part of a savepoint made of rows: its database, filled in sorted runs, and published as an image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.bootstrap.plan import TOPIC_ID, BootstrapPlan, TaskOf
from stateflow.changelog.position import InputPosition
from stateflow.checkpoint.image_making import SAVEPOINT_FOLDER, take_checkpoint_in
from stateflow.checkpoint.savepoints import SavedTask
from stateflow.clock import Clock
from stateflow.errors import ConfigError
from stateflow.memory import ENTRY_BYTES
from stateflow.runtime.snapshots.savepoint_participant import publish_image, saved_task
from stateflow.store.base import Change, StorePosition
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores


@dataclass(frozen=True, slots=True)
class WrittenTask:
    """A published part."""

    saved: SavedTask
    rows: dict[str, int]
    """By store, how many."""


class TaskPart:
    """Takes the entries of one task. Use as a context manager: its folder goes with it."""

    def __init__(self, plan: BootstrapPlan, task: TaskOf, clock: Clock, *, held_bytes_max: int) -> None:
        self._plan = plan
        self._task = task
        self._clock = clock
        self._held_bytes_max = held_bytes_max
        self._held: dict[str, list[Change]] = {}
        self._held_bytes = 0
        self._rows: dict[str, int] = {}
        self._stack = ExitStack()
        self._stores: RocksTaskStores | None = None

    def __enter__(self) -> TaskPart:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, store: str, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Take in entries; more than ``held_bytes_max`` become a sorted run on disk. Raises as ``publish``."""
        held = self._held.setdefault(store, [])
        before = len(held)
        for key, value in entries:
            held.append((key, value))
            self._held_bytes += ENTRY_BYTES + len(key) + len(value)
        self._rows[store] = self._rows.get(store, 0) + len(held) - before
        if self._held_bytes > self._held_bytes_max:
            self._write_held()

    def publish(self) -> WrittenTask:
        """Upload the image, if there is any state. Raises ``ConfigError`` where two rows have one key."""
        self._write_held()
        image = None
        if self._stores is not None:
            for store, rows in self._rows.items():
                self._check_count(self._stores, store, rows)
            changelogs = self._plan.changelogs(self._task)
            folder = self._stores.directory.path / SAVEPOINT_FOLDER
            ids = {changelog.topic: TOPIC_ID for changelog in changelogs.values()}
            taken = take_checkpoint_in(folder, self._stores, changelogs, ids)
            assert taken is not None, "something was written"
            saved = self._plan.objects(self._clock)
            images = saved.images(self._plan.generation.generation, self._task.id)
            image = publish_image(taken, images, self._position(), saved.id, lambda: False)
        part = saved_task(self._task.id, self._task.stage, self._task.partition, self._position(), image)
        return WrittenTask(part, dict(self._rows))

    # --- inside ---------------------------------------------------------------------------------------

    def _position(self) -> InputPosition:
        sources = self._plan.catalog.stages[self._task.stage].sources
        own = {
            at: offset_next
            for at, offset_next in self._plan.positions.items()
            if at.partition == self._task.partition and at.topic in sources
        }
        return InputPosition(own)

    def _write_held(self) -> None:
        for store, changes in self._held.items():
            if changes:
                changes.sort(key=lambda change: change[0])
                self._check_distinct(store, changes)
                self._opened().load(store, changes, StorePosition(TOPIC_ID, 0, self._plan.created_ms))
        self._held, self._held_bytes = {}, 0

    def _opened(self) -> RocksTaskStores:
        if self._stores is None:
            folder = self._stack.enter_context(TemporaryDirectory(prefix="stateflow-bootstrap-"))
            place = TaskDirectory(
                Path(folder) / self._task.id, Identity("savepoint", "savepoint", 0, self._task.id)
            )
            place.claim()
            changelogs = self._plan.changelogs(self._task)
            self._stores = RocksTaskStores.open(place, changelogs, RocksResources(), self._clock)
            self._stack.callback(self._stores.close)
        return self._stores

    def _check_distinct(self, store: str, changes: Sequence[Change]) -> None:
        for before, after in pairwise(changes):
            if before[0] == after[0]:
                raise _twice(store, before[0])

    def _check_count(self, stores: RocksTaskStores, store: str, rows: int) -> None:
        """What stands in two runs shows as fewer entries than rows."""
        if rows and sum(1 for _ in stores.reader(store).scan()) != rows:
            raise _twice(store, None)


def _twice(store: str, key: bytes | None) -> ConfigError:
    which = "one key" if key is None else f"the key {key!r:.80}"
    return ConfigError(
        f"several rows of {store!r} have {which}.",
        action="give one row for each entry: aggregate before, or take the newest.",
        store=store,
    )
