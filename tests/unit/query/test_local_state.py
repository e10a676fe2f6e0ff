"""Reading local state: beside a worker, and where one was killed before its database began."""

from __future__ import annotations

from pathlib import Path

import stateflow as sf
from stateflow.cli.state import _as_of
from stateflow.codec.scalar import Integer
from stateflow.query.local import LocalState, as_fields, list_stores
from stateflow.store.base import StorePosition
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores
from stateflow.testing import TestDriver


def test_a_task_directory_without_a_database_holds_nothing(tmp_path: Path) -> None:
    begun = task_directory(tmp_path, "app", "cluster", 0, "count-0")
    stores = RocksTaskStores.open(begun, ["tally"], RocksResources())
    stores.apply({"tally": [(b"k", b"v")]}, {"tally": StorePosition("id", 1)})
    stores.close()
    task_directory(tmp_path, "app", "cluster", 0, "count-1").claim()  # and then it was killed
    assert [(found.task, found.store) for found in list_stores(tmp_path)] == [("count-0", "tally")]


def test_an_answer_tells_how_new_it_is_and_who_writes(tmp_path: Path) -> None:
    app = sf.App("shop")
    app.stream(app.topic("in", key=bytes, value=int), co_partitioned=True).count(name="n")
    driver = TestDriver(app, partitions=1)
    catalog = driver._wiring.catalog
    directory = task_directory(tmp_path, "shop", "cluster", 0, f"{catalog.stores['n'].stage}-0")
    state = LocalState(tmp_path, catalog)
    stores = RocksTaskStores.open(directory, ["n"], RocksResources())
    stores.apply({"n": [(b"\xff", Integer.encode(5))]}, {"n": StorePosition("id", 1)})
    assert "before a first flush. A running worker (pid " in _as_of(state, "n", None)
    stores.flush()
    while_open = _as_of(state, "n", None)
    stores.close()
    (seen,) = state.seen("n")
    assert seen.flushed_at is not None
    assert f"as of {seen.flushed_at:%Y-%m-%d %H:%M:%S} UTC. A running worker" in while_open
    assert "flush_interval_seconds" not in _as_of(state, "n", None)
    assert [as_fields(row) for row in state.get("n", "hex:ff")] == [
        {"task": seen.task, "key": "hex:ff", "value": 5}
    ]
    driver.stop()
