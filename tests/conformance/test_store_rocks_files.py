"""The file that the RocksDB binding keeps beside a database: what it may say, and what a kill may leave of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stateflow.errors import StateForeign, StateLocked
from stateflow.store.base import StorePosition
from stateflow.store.directory import TaskDirectory, task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

ROWS = 100


def place(root: Path, task: str = "main-0") -> TaskDirectory:
    return task_directory(root, "app", "cluster", 0, task)


def opened(root: Path) -> RocksTaskStores:
    return RocksTaskStores.open(place(root), ("a",), RocksResources())


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A closed store of some rows."""
    stores = opened(tmp_path)
    stores.apply({"a": [(b"%08d" % i, b"value") for i in range(ROWS)]}, {"a": StorePosition("t", ROWS)})
    stores.close()
    return tmp_path


CONFIG_FILE = "rocksdict-config.json"


@pytest.mark.parametrize("value", ["false", "null", '"true"'])
def test_a_database_to_be_read_with_pickle_is_refused(filled: Path, tmp_path: Path, value: str) -> None:
    text = f'{{"raw_mode": {value}, "prefix_extractors": {{}}}}'
    (place(filled).database / CONFIG_FILE).write_text(text)
    with pytest.raises(StateForeign, match="raw bytes"):
        opened(filled)
    with pytest.raises(StateForeign, match="raw bytes"):
        RocksTaskStores.open_secondary(place(filled), str(tmp_path / "notes"), RocksResources())
    assert (place(filled).database / CONFIG_FILE).read_text() == text, "it was not touched"


@pytest.mark.parametrize("left_bytes", [None, 0, 1, 14, -1])
def test_what_a_kill_left_of_the_bindings_own_file_is_replaced(
    filled: Path, left_bytes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is truncated and written again at each open; the content is what it was, so nothing is set aside."""
    file = place(filled).database / CONFIG_FILE
    whole = file.read_bytes()
    file.unlink() if left_bytes is None else file.write_bytes(whole[:left_bytes])
    stores = opened(filled)
    assert len(list(stores.reader("a").scan())) == ROWS
    stores.close()
    assert file.read_bytes() == whole
    assert not caplog.records
    assert not place(filled).path.with_name("main-0.damaged").exists()


@pytest.mark.parametrize("left_bytes", [None, 0, 14])
def test_a_look_beside_the_writer_may_meet_that_file_half_written(
    filled: Path, tmp_path: Path, left_bytes: int | None
) -> None:
    writer = opened(filled)
    file = place(filled).database / CONFIG_FILE
    whole = file.read_bytes()
    file.unlink() if left_bytes is None else file.write_bytes(whole[:left_bytes])
    beside = RocksTaskStores.open_secondary(place(filled), str(tmp_path / "notes"), RocksResources())
    assert len(list(beside.reader("a").scan())) == ROWS
    beside.close()
    with pytest.raises(StateLocked):  # not another's state: it is in use
        opened(filled)
    writer.close()
