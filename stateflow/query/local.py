"""Reading local state from outside: beside a running worker, or when nothing runs.

The databases are opened as RocksDB *secondaries*: nothing is locked and nothing is changed. What is seen is
what the worker last flushed (``flush_interval_seconds``, 30 s by default), not yet its newest commits. A
directory may hold tasks that another machine runs by now; each row names its task, and each task its
position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stateflow.catalog.model import Catalog, StoreEntry
from stateflow.catalog.names import stage_and_partition, stage_of
from stateflow.errors import ConfigError, StateCorrupt
from stateflow.query.shown import as_json
from stateflow.state.decoding import Row, StoreDecoder
from stateflow.state.index import found_keys, marked_names
from stateflow.store.base import StorePosition, StoreSize
from stateflow.store.derived import index_family
from stateflow.store.directory import TaskDirectory, find_task_directories
from stateflow.store.faults import lock_holder
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_CACHE_BYTES = 16 << 20
ROW_PARTS = ("window_start_ms", "index", "map_key", "version_ms", "written_ms", "expires_ms")
"""What a row may have beside key and value, in the order in which it is shown."""


@dataclass(frozen=True, slots=True)
class LocalStore:
    """One store of one task on this disk."""

    app: str
    generation: int
    task: str
    store: str
    position: StorePosition | None
    size: StoreSize
    held_by_pid: int | None
    """The worker that has the task open; None when none has, or it cannot be told."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A row, and the task whose local store it is from."""

    task: str
    row: Row


@dataclass(frozen=True, slots=True)
class Seen:
    """How new that is which one task's directory shows to others than its worker."""

    task: str
    flushed_at: datetime | None
    """When its newest file was written; None before the first."""
    held_by_pid: int | None
    """The worker that has the task open; None when none has, or it cannot be told."""


def as_fields(found: TaskRow) -> dict[str, Any]:
    """A row as JSON has it; parts that the store does not have are left out."""
    row = found.row
    parts = {name: as_json(getattr(row, name)) for name in ROW_PARTS if getattr(row, name) is not None}
    return {"task": found.task, "key": as_json(row.key), **parts, "value": as_json(row.value)}


def list_stores(state_dir: Path, app: str | None = None) -> Iterator[LocalStore]:
    """Every store below a state directory. Needs no broker. Raises ``StateForeign``, ``StateCorrupt``."""
    for directory in _filled(state_dir, app):
        pid = lock_holder(directory.database / "LOCK")
        with opened_beside(directory) as stores:
            for store in stores.stores:
                yield LocalStore(
                    app=directory.identity.app,
                    generation=directory.identity.generation,
                    task=directory.identity.task,
                    store=store,
                    position=stores.position(store),
                    size=stores.size(store),
                    held_by_pid=pid,
                )


class LocalState:
    """The state of one application on this disk, decoded by its catalog."""

    def __init__(self, state_dir: Path, catalog: Catalog) -> None:
        self.state_dir = state_dir
        self._catalog = catalog

    def entry(self, store: str) -> StoreEntry:
        """The catalog's entry of a store; ``ConfigError`` names those that there are."""
        found = self._catalog.stores.get(store)
        if found is None:
            raise ConfigError(
                f"{self._catalog.app.app!r} has no store {store!r}.",
                action=f"its stores are: {', '.join(sorted(self._catalog.stores)) or 'none'}.",
            )
        return found

    def get(self, store: str, key: str) -> list[TaskRow]:
        """Everything held for one key, written as a person writes it (see ``StoreDecoder.key_bytes``)."""
        decoder = StoreDecoder(self.entry(store))
        routing_key = decoder.key_bytes(key)
        found: list[TaskRow] = []
        for directory in self._directories(store):
            with opened_beside(directory) as stores:
                if store in stores.stores:
                    rows = decoder.rows_of(stores.reader(store), routing_key)
                    found += [TaskRow(directory.identity.task, row) for row in rows]
        return found

    def seen(self, store: str) -> list[Seen]:
        """Up to when what this disk shows of a store's tasks is, and who has them open."""
        return [_seen(directory) for directory in self._directories(store)]

    def scan(self, store: str, partitions: Sequence[int] = ()) -> Iterator[TaskRow]:
        """All rows of a store, task by task, in store order within a task."""
        decoder = StoreDecoder(self.entry(store))
        for directory in self._directories(store, partitions):
            with opened_beside(directory) as stores:
                if store in stores.stores:
                    for row in decoder.rows(stores.reader(store)):
                        yield TaskRow(directory.identity.task, row)

    def find(
        self, store: str, index: str, value: str | float | bool, partitions: Sequence[int] = ()
    ) -> Iterator[TaskRow]:
        """All rows of which an index gives a value, task by task.

        Raises ``ConfigError`` for a store without indexes, or with ones that are not up to its content: a restore
        by command leaves them to the worker that opens the task next.
        """
        decoder = StoreDecoder(self.entry(store))
        family = index_family(store)
        for directory in self._directories(store, partitions):
            with opened_beside(directory) as stores:
                mark = stores.position(family)
                names = [] if mark is None else marked_names(mark)
                if index not in names:
                    raise ConfigError(
                        f"{directory.identity.task} on this disk has no index {index!r} of {store!r} that is up to"
                        f" date; it has {', '.join(names) or 'none'}.",
                        action="declare it with sf.state(index={…}), and let a worker open the task once.",
                    )
                for row in decoder.rows_at(
                    stores.reader(store), found_keys(stores.reader(family), index, value)
                ):
                    yield TaskRow(directory.identity.task, row)

    def _directories(self, store: str, partitions: Sequence[int] = ()) -> list[TaskDirectory]:
        """Task directories of the store's stage in the active generation; of all partitions, if none are named."""
        stage, generation = self.entry(store).stage, self._catalog.active.generation
        there = self._catalog.partitions(stage)
        if unknown := [str(partition) for partition in partitions if not 0 <= partition < there]:
            raise ConfigError(
                f"Stage {stage!r} of {self._catalog.app.app!r} has no partition {', '.join(unknown)}.",
                action=f"its generation {generation} has partitions 0 to {there - 1}.",
            )
        found = [
            directory
            for directory in _filled(self.state_dir, self._catalog.app.app)
            if directory.identity.generation == generation
            and stage_of(directory.identity.task) == stage
            and (not partitions or _partition(directory) in partitions)
        ]
        if not found:
            raise ConfigError(
                f"{self.state_dir} holds no task of stage {stage!r}, generation {generation}"
                f"{', of these partitions' if partitions else ''}.",
                action="name the directory that the workers use with --state-dir, or fill this one with"
                f" `stateflow restore --app {self._catalog.app.app} --to {self.state_dir}`.",
            )
        return sorted(found, key=_partition)


def _seen(directory: TaskDirectory) -> Seen:
    written = [path.stat().st_mtime for path in directory.database.glob("*.sst")]
    flushed_at = datetime.fromtimestamp(max(written), UTC) if written else None
    return Seen(directory.identity.task, flushed_at, lock_holder(directory.database / "LOCK"))


def _partition(directory: TaskDirectory) -> int:
    return stage_and_partition(directory.identity.task)[1]


def _filled(state_dir: Path, app: str | None) -> Iterator[TaskDirectory]:
    """Task directories that hold a database: one whose worker was killed before it began may not, nor one set aside."""
    for directory in find_task_directories(state_dir, app):
        if directory.is_damaged or (directory.database / "CURRENT").exists():
            yield directory


@contextmanager
def opened_beside(directory: TaskDirectory) -> Iterator[RocksTaskStores]:
    """A task's stores for reading, whoever else has them open."""
    if directory.is_damaged:
        raise StateCorrupt(
            f"the store in {directory.path} was found damaged.",
            action="start a worker on it or run `stateflow restore`: it is then rebuilt from the changelog.",
            path=str(directory.path),
        )
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        stores = RocksTaskStores.open_secondary(directory, scratch, RocksResources(cache_bytes=_CACHE_BYTES))
        try:
            yield stores
        finally:
            stores.close()
