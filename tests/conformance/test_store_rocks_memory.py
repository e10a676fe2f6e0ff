"""The bound on memtables that all stores of a process share."""

from __future__ import annotations

from pathlib import Path

from stateflow.store.base import StorePosition
from stateflow.store.directory import TaskDirectory, task_directory
from stateflow.store.resources import DEFAULT_WRITE_BUFFER_BYTES, RocksResources
from stateflow.store.rocks import RocksTaskStores


def place(root: Path, task: str = "main-0") -> TaskDirectory:
    return task_directory(root, "app", "cluster", 0, task)


def test_many_small_stores_share_the_bound_on_memtables_without_flushing(tmp_path: Path) -> None:
    """As many as 180 tasks of 4 families in the default bound: what their memtables take at least must fit in it."""
    tasks, writes = 6, 30
    resources = RocksResources(write_buffer_bytes=DEFAULT_WRITE_BUFFER_BYTES * tasks // 180)
    opened_tasks = [
        RocksTaskStores.open(place(tmp_path, task=f"x-{task}"), ("a", "b"), resources)
        for task in range(tasks)
    ]
    for offset in range(writes):
        for stores in opened_tasks:
            row = [(b"%08d" % offset, b"v" * 50)]
            stores.apply(
                {"a": row, "b": row}, {store: StorePosition("t", offset + 1) for store in ("a", "b")}
            )
    used_bytes = resources.write_buffers.get_usage()
    flushed = [str(table) for table in tmp_path.rglob("*.sst")]
    for stores in opened_tasks:
        stores.close()
    assert flushed == []
    assert used_bytes <= DEFAULT_WRITE_BUFFER_BYTES * tasks * 4 // 4000, (
        "1,000 tasks of 4 families fit as well"
    )


def test_blocks_of_files_that_are_gone_leave_the_cache(tmp_path: Path) -> None:
    """State that is written and read again and again takes as much cache as it has blocks, whatever is flushed."""
    resources = RocksResources()
    stores = RocksTaskStores.open(place(tmp_path), ("a",), resources)
    rows = [(b"%06d" % number, b"v" * 100) for number in range(1_000)]
    used_bytes = []
    for offset in range(150):
        stores.apply({"a": rows}, {"a": StorePosition("t", offset + 1)})
        stores.flush()
        assert len(list(stores.reader("a").scan())) == len(rows)
        used_bytes.append(resources.cache.get_usage())
    stores.close()
    assert max(used_bytes) < 20 * 1_000 * 150, "a few files' worth, not 150"
