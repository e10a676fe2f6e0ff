"""Reading local state where a worker was killed before its database began."""

from __future__ import annotations

from pathlib import Path

from stateflow.query.local import list_stores
from stateflow.store.base import StorePosition
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores


def test_a_task_directory_without_a_database_holds_nothing(tmp_path: Path) -> None:
    begun = task_directory(tmp_path, "app", "cluster", 0, "count-0")
    stores = RocksTaskStores.open(begun, ["tally"], RocksResources())
    stores.apply({"tally": [(b"k", b"v")]}, {"tally": StorePosition("id", 1)})
    stores.close()
    task_directory(tmp_path, "app", "cluster", 0, "count-1").claim()  # and then it was killed
    assert [(found.task, found.store) for found in list_stores(tmp_path)] == [("count-0", "tally")]
