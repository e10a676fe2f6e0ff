"""A database whose damage shows while it is read: it must close although somebody keeps the error."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stateflow.errors import DiskFull, StateCorrupt
from stateflow.store.base import StorePosition
from stateflow.store.directory import TaskDirectory, task_directory
from stateflow.store.faults import background_error
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import POSITIONS_FAMILY, RocksTaskStores
from tests.waiting import wait_until

STORE = "count"


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """What is in a reference cycle stays, as it does in a process for as long as the collector waits."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def directory(tmp_path: Path) -> TaskDirectory:
    """A task directory whose table files were damaged on the disk."""
    directory = task_directory(tmp_path, "shop", "cluster", 0, "count-0")
    stores = RocksTaskStores.open(directory, [STORE], RocksResources())
    stores.apply({STORE: [(b"a", b"1"), (b"b", b"2")]}, {STORE: StorePosition("topic", 2)})
    stores.close()
    for table in directory.database.glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[:48] = bytes(48)
        table.write_bytes(content)
    return directory


@pytest.mark.parametrize(
    "read",
    [
        lambda stores: stores.reader(STORE).get(b"a"),
        lambda stores: stores.reader(STORE).get_many([b"a", b"b"]),
        lambda stores: list(stores.reader(STORE).scan()),
    ],
    ids=["get", "get_many", "scan"],
)
def test_it_is_opened_anew_while_the_error_is_kept(
    directory: TaskDirectory, read: Callable[[RocksTaskStores], object]
) -> None:
    stores = RocksTaskStores.open(directory, [STORE], RocksResources())
    with pytest.raises(StateCorrupt) as found:
        read(stores)
    stores.close()

    again = RocksTaskStores.open(directory, [STORE], RocksResources())
    assert again.position(STORE) is None, "the damaged one was set aside"
    assert directory.path.with_name("count-0.damaged").is_dir()
    again.close()
    assert found.value.__traceback__ is not None


def test_damage_that_a_compaction_meets_is_told_from_a_full_disk(tmp_path: Path) -> None:
    directory = task_directory(tmp_path, "shop", "cluster", 0, "count-0")
    for value in (b"1", b"2", b"3"):
        stores = RocksTaskStores.open(directory, [STORE], RocksResources())
        stores.apply(
            {STORE: [(b"%03d" % key, value) for key in range(50)]}, {STORE: StorePosition("topic", 2)}
        )
        stores.close()
    for table in directory.database.glob("*.sst"):
        content = bytearray(table.read_bytes())
        content[12] ^= 0xFF
        if POSITIONS_FAMILY.encode() not in content:
            table.write_bytes(content)

    stores = RocksTaskStores.open(directory, [STORE], RocksResources())
    stores.apply({STORE: [(b"000", b"4")]}, {STORE: StorePosition("topic", 3)})
    with pytest.raises(StateCorrupt, match="checksum"):  # the fourth table begins a compaction
        wait_until(lambda: False, "the compaction to fail", check=stores.flush)
    with pytest.raises(StateCorrupt, match="checksum"):
        stores.close()

    again = RocksTaskStores.open(directory, [STORE], RocksResources())
    assert again.position(STORE) is None, "the damaged one was set aside"
    again.close()


def test_why_work_in_the_background_failed_is_waited_for_as_it_is_counted_first(tmp_path: Path) -> None:
    directory = task_directory(tmp_path, "shop", "cluster", 0, "count-0")
    directory.database.mkdir(parents=True)
    log = directory.database / "LOG"
    log.write_text("begun\n")
    why = "Waiting after background compaction error: Corruption: a block, Accumulated background error counts: 1\n"
    late = threading.Timer(0.1, lambda: log.write_text(f"begun\n{why}"))
    late.start()
    found = background_error(directory, 1)
    late.join()
    assert isinstance(found, StateCorrupt)


def test_a_log_that_never_says_why_is_that_of_a_full_disk(tmp_path: Path) -> None:
    directory = task_directory(tmp_path, "shop", "cluster", 0, "count-0")
    directory.database.mkdir(parents=True)
    assert isinstance(background_error(directory, 1), DiskFull)
