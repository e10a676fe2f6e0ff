"""Point reads in ranges that were read and are not part of the store yet.

A scratch database takes each run in as a family of its own, by hard links, when the first question comes: what nobody
asks costs nothing. Not thread-safe.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from stateflow.scale.early.files import RunFiles
from stateflow.store.base import Change
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_FOLDER = "view"
_DELETED = b""


class RangesView:
    """What the runs in one task's folder of ranges say about a key."""

    def __init__(self, folder: Path, identity: Identity, resources: RocksResources) -> None:
        self._ranges_folder = folder
        self._directory = TaskDirectory(folder / _FOLDER, identity)
        self._resources = resources
        self._stores: RocksTaskStores | None = None

    def says(self, run: RunFiles, key: bytes) -> tuple[bool, bytes | None]:
        """Whether a run has the key, and its newest value there; None for a deletion."""
        stores = self._opened()
        value = stores.reader(self._family(run.changes)).get(key)
        if value is not None:
            return True, value
        is_deleted = run.deleted is not None and stores.reader(self._family(run.deleted)).get(key) is not None
        return is_deleted, None

    def changes(self, run: RunFiles) -> Iterator[Change]:
        """All that a run says, sorted by key."""
        stores = self._opened()
        values: Iterator[Change] = stores.reader(self._family(run.changes)).scan()
        if run.deleted is None:
            return values
        deleted: Iterator[Change] = (
            (key, None) for key, _ in stores.reader(self._family(run.deleted)).scan()
        )
        return heapq.merge(values, deleted, key=lambda change: change[0])

    def close(self) -> None:
        """Remove the scratch database; the runs stay."""
        if self._stores is not None:
            self._stores.close()
            self._stores = None
        shutil.rmtree(self._directory.path, ignore_errors=True)

    def _opened(self) -> RocksTaskStores:
        if self._stores is None:
            shutil.rmtree(self._directory.path, ignore_errors=True)  # of a process that was killed
            self._stores = RocksTaskStores.open(self._directory, (), self._resources)
        return self._stores

    def _family(self, file: str) -> str:
        """The family that holds a file, which is taken in if it was not."""
        stores = self._opened()
        if file not in stores.stores:
            stores.derive(file)
            link = self._directory.path / file
            os.link(self._ranges_folder / file, link)
            stores.ingest_file(file, link)
        return file
