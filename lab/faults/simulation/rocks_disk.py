"""The disk of one simulated machine with real RocksDB databases on it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from stateflow.clock import Clock
from stateflow.errors import StateCorrupt
from stateflow.lab.faults.simulation.disks import Place, run_ahead
from stateflow.lab.faults.simulation.memory_images import scratch_folder
from stateflow.lab.faults.simulation.processes import STORE_ERRORS, Notes, Process, Watched
from stateflow.log.base import Cluster
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.directory import TaskDirectory, task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import POSITIONS_FAMILY, RocksTaskStores

_LOOK_SECONDS, _LOOKS_MAX = 0.001, 10_000
_FLIPPED_AT = 12
"""Within the first block, which holds entries; the footer and the index stay whole."""


@cache
def _resources() -> RocksResources:
    return RocksResources()


class RocksDisk:
    """Databases below a folder of their own, which ``remove`` takes away.

    A kill is simulated by what is in the files at that moment: the database is copied, closed, and put back.
    """

    def __init__(self, clock: Clock, notes: Notes) -> None:
        self.state_dir = Path(tempfile.mkdtemp(prefix="stateflow-disk-", dir=scratch_folder()))
        self._clock = clock
        self._notes = notes
        self._open: dict[Place, RocksTaskStores] = {}
        self._backups: dict[Path, Path] = {}
        self._runs_ahead = False

    def open(
        self, cluster: Cluster, process: Process, wiring: TaskWiring, _cancelled: Callable[[], bool]
    ) -> Any:
        """The stores of a task, every write to which is a place."""
        names = [store.name for store in wiring.stage.stores]
        stores = RocksTaskStores.open(self._directory(cluster, wiring), names, _resources(), self._clock)
        self._open[wiring.generation, wiring.id] = stores
        if self._runs_ahead and names:
            self._runs_ahead = False
            try:
                run_ahead(cluster, wiring, stores, self._notes)
            except Exception:  # struck amid it, as the opening that it is a part of
                stores.close()
                raise
        return Watched(stores, process, "stores", STORE_ERRORS)

    def found(self, wiring: TaskWiring) -> RocksTaskStores | None:
        """What is on the disk of a task that is open."""
        return self._open.get((wiring.generation, wiring.id))

    def crash(self, *, keeps_all: bool) -> None:
        """The process was killed: what RocksDB had not written is lost, or by chance is not."""
        for stores in self._open.values():
            path = stores.directory.path
            if keeps_all or not stores.is_open:
                _let_go(stores)
                continue
            copy = path.with_name(f"{path.name}.copy")
            _copy(stores, copy)
            _let_go(stores)
            shutil.rmtree(path)
            copy.rename(path)
        self._open.clear()

    def lose(self) -> None:
        """The disk is gone."""
        self._backups.clear()
        shutil.rmtree(self.state_dir)
        self.state_dir.mkdir()

    def back_up(self) -> None:
        """Remember what is in the files now."""
        for stores in self._open.values():
            path = stores.directory.path
            copy = self.state_dir / f"backup-{len(self._backups)}"
            if stores.is_open and not copy.exists():
                stores.flush()
                _copy(stores, copy)
                self._backups[path] = copy

    def reinstate(self) -> None:
        """Put back what was remembered: stores that are behind. No worker may have them open."""
        for path, copy in self._backups.items():
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(copy, path)

    def run_ahead(self) -> None:
        """Let the next store that is opened claim more than its log has, with content that nobody wrote."""
        self._runs_ahead = True

    def corrupt(self) -> None:
        """Turn one byte around in the largest table file of every task. No worker may have them open.

        Not in the positions, which are looked up first of all: damaged, no store would be opened.
        """
        for database in sorted(self.state_dir.glob("*/g*/*/db")):
            tables = [
                table
                for table in database.glob("*.sst")
                if POSITIONS_FAMILY.encode() not in table.read_bytes()
            ]
            if tables:
                tables.sort(key=lambda table: (table.stat().st_size, table.name))
                content = bytearray(tables[-1].read_bytes())
                content[_FLIPPED_AT] ^= 0xFF
                tables[-1].write_bytes(content)

    def remove(self) -> None:
        """Take everything away."""
        self.crash(keeps_all=True)
        shutil.rmtree(self.state_dir, ignore_errors=True)

    def _directory(self, cluster: Cluster, wiring: TaskWiring) -> TaskDirectory:
        return task_directory(self.state_dir, wiring.app, cluster.cluster_id, wiring.generation, wiring.id)


def _copy(stores: RocksTaskStores, copy: Path) -> None:
    """What is in the files now. Nobody writes meanwhile, but compactions in the background replace files."""
    families = [stores.family(name) for name in (*stores.stores, POSITIONS_FAMILY)]

    def is_at_rest() -> bool:
        properties = ["num-running-compactions", "num-running-flushes"]
        if not families[0].property_int_value("rocksdb.background-errors"):  # then none begins any more
            properties += ["compaction-pending", "mem-table-flush-pending"]
        return not any(
            family.property_int_value(f"rocksdb.{name}") for family in families for name in properties
        )

    for _ in range(_LOOKS_MAX):
        if is_at_rest():
            break
        time.sleep(_LOOK_SECONDS)
    shutil.copytree(stores.directory.path, copy)


def _let_go(stores: RocksTaskStores) -> None:
    """Close a killed process's stores. It would have flushed nothing, so a flush that meets damage changes nothing."""
    with suppress(StateCorrupt):
        stores.close()
