"""An index on RocksDB under a real worker: kept over a clean restart, made anew on another disk and elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.directory import task_directory
from stateflow.store.rocks import RocksResources, RocksTaskStores
from stateflow.testing.driver import TestDriver
from tests.sim.test_indexes import Change, User, team_app


def on_disk(root: Path) -> type[TestDriver]:
    """A driver whose workers keep their state below ``root``."""

    class DiskDriver(TestDriver):
        def _open_stores(self, wiring: TaskWiring, _cancelled: Callable[[], bool]) -> Any:
            place = task_directory(root, wiring.app, "memory", wiring.generation, wiring.id)
            return RocksTaskStores.open(place, [s.name for s in wiring.stage.stores], RocksResources())

    return DiskDriver


def found(driver: TestDriver) -> list[str]:
    return sorted(part for _, part, _ in driver.find("teams", "users", "country", "de"))


def test_a_clean_restart_keeps_the_index_and_a_lost_disk_makes_it_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app, changes = team_app()
    driver = on_disk(tmp_path / "one")(app, partitions=2)
    for number in range(20):
        driver.send(
            changes, Change(f"team-{number}", f"user-{number}", User("de" if number % 2 else "fr", 1))
        )
    expected = sorted(f"user-{number}" for number in range(20) if number % 2)
    assert found(driver) == expected

    def made() -> int:
        return sum("indexes of teams-users were made" in record.getMessage() for record in caplog.records)

    driver.stop()
    driver.restore()
    assert (found(driver), made()) == (expected, 0), "only markers stood in the changelog's tail"

    driver.stop()
    moved = on_disk(tmp_path / "two")(app, partitions=2, beside=driver)
    moved.run()
    assert found(moved) == expected
    assert made() == 2, "one for each task"
    moved.repartition(3)
    assert found(moved) == expected
    moved.stop()
