"""A checkpoint of a task's database is that database at one moment: content and positions, for ever."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from stateflow.checkpoint.manifest import FILE_NAME
from stateflow.store.base import StorePosition
from stateflow.store.directory import TaskDirectory, task_directory
from stateflow.store.rocks import RocksResources, RocksTaskStores

ROWS = 5_000
STORES = ("counts", "seen")


def place(root: Path) -> TaskDirectory:
    return task_directory(root, "app", "cluster", 0, "main-0")


def opened(root: Path) -> RocksTaskStores:
    return RocksTaskStores.open(place(root), STORES, RocksResources())


def opened_checkpoint(checkpoint: Path, root: Path) -> RocksTaskStores:
    """The checkpoint, put where a task's database is."""
    place(root).claim()
    checkpoint.rename(place(root).database)
    return opened(root)


def content(stores: RocksTaskStores) -> dict[str, list[tuple[bytes, bytes]]]:
    return {store: list(stores.reader(store).scan()) for store in STORES}


def positions(stores: RocksTaskStores) -> dict[str, tuple[StorePosition | None, int]]:
    found = {store: stores.position(store) for store in STORES}
    return {store: (at, at.applied_ms if at else 0) for store, at in found.items()}


def test_a_checkpoint_opens_with_equal_content_and_positions(tmp_path: Path) -> None:
    stores = opened(tmp_path / "one")
    stores.load("counts", [(b"%06d" % i, os.urandom(50)) for i in range(ROWS)], StorePosition("t", ROWS))
    stores.apply(
        {"seen": [(b"k", b"v")]}, {"seen": StorePosition("s", 3), "counts": StorePosition("t", 9_000)}
    )
    returned = stores.checkpoint(tmp_path / "checkpoint")
    assert returned == {"counts": StorePosition("t", 9_000), "seen": StorePosition("s", 3)}
    wanted = content(stores), positions(stores)
    stores.apply({"counts": [(b"000000", None)]}, {"counts": StorePosition("t", 9_001)})
    stores.close()

    copy = opened_checkpoint(tmp_path / "checkpoint", tmp_path / "two")
    assert (content(copy), positions(copy)) == wanted
    assert len(wanted[0]["counts"]) == ROWS
    copy.close()


def test_a_checkpoint_shares_its_tables_with_the_database_and_outlives_it(tmp_path: Path) -> None:
    stores = opened(tmp_path / "one")
    stores.apply(
        {"counts": [(b"%06d" % i, b"v" * 50) for i in range(ROWS)]}, {"counts": StorePosition("t", 5)}
    )
    stores.checkpoint(tmp_path / "checkpoint")
    tables = list((tmp_path / "checkpoint").glob("*.sst"))
    assert tables
    assert all(table.stat().st_nlink == 2 for table in tables)
    stores.clear("counts")
    stores.close()
    copy = opened_checkpoint(tmp_path / "checkpoint", tmp_path / "two")
    assert len(content(copy)["counts"]) == ROWS
    copy.close()


def test_an_empty_database_has_a_checkpoint_too(tmp_path: Path) -> None:
    stores = opened(tmp_path / "one")
    stores.checkpoint(tmp_path / "checkpoint")
    stores.close()
    copy = opened_checkpoint(tmp_path / "checkpoint", tmp_path / "two")
    assert positions(copy) == dict.fromkeys(STORES, (None, 0))
    copy.close()


def test_a_checkpoint_holds_only_files_that_an_image_may_name(tmp_path: Path) -> None:
    stores = opened(tmp_path / "one")
    for number in range(3):
        stores.apply({"counts": [(b"k%d" % number, b"v")]}, {"counts": StorePosition("t", number)})
        stores.checkpoint(tmp_path / f"checkpoint-{number}")
    stores.close()
    names = {file.name for number in range(3) for file in (tmp_path / f"checkpoint-{number}").iterdir()}
    assert "CURRENT" in names
    assert all(FILE_NAME.fullmatch(name) for name in names)


def test_checkpoints_taken_while_another_thread_writes_are_whole_epochs(tmp_path: Path) -> None:
    """Both stores are written in one epoch whose number is its position: a checkpoint must never mix two."""
    stores = opened(tmp_path / "one")
    taken = threading.Event()

    def write() -> None:
        epoch = 0
        while not taken.is_set():
            epoch += 1
            changed = [(b"epoch", b"%d" % epoch), (b"row-%08d" % epoch, b"v" * 200)]
            stores.apply(dict.fromkeys(STORES, changed), dict.fromkeys(STORES, StorePosition("t", epoch)))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        returned = [stores.checkpoint(tmp_path / f"checkpoint-{number}") for number in range(5)]
    finally:
        taken.set()
        writer.join()
        stores.close()
    for number in range(5):
        copy = opened_checkpoint(tmp_path / f"checkpoint-{number}", tmp_path / f"copy-{number}")
        found = content(copy)
        for store in STORES:
            at = copy.position(store)
            epoch = at.offset_next if at else 0
            assert len(found[store]) == epoch + bool(epoch)
            assert epoch == 0 or found[store][0] == (b"epoch", b"%d" % epoch)
        assert copy.position("counts") == copy.position("seen") == returned[number].get("seen")
        copy.close()
