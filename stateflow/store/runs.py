"""Sorted files made away from the database that will take them in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stateflow.store.base import Change, assert_sorted
from stateflow.store.resources import file_options
from stateflow.store.rocks import RocksTaskStores
from stateflow.store.sst import write_sst


def write_run(file: Path, changes: Sequence[Change]) -> None:
    """Write changes, sorted by key and at least one, to a new file; deletions shadow what older runs say."""
    assert_sorted(changes)
    write_sst(file, changes, file_options())


def take_in_run(stores: RocksTaskStores, store: str, file: Path) -> None:
    """Make a run part of a store, newer than what is in it; the file, which lies beside the database, is moved.

    The store has no position until the caller writes one: a crash before that leaves nothing that counts. Raises
    ``StateCorrupt``, ``DiskFull``.
    """
    assert stores.position(store) is None, "a run is taken in by a store that is being rebuilt"
    stores.ingest_file(store, file)
