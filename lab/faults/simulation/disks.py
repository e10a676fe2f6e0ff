"""The disk of one simulated machine: the local stores of the tasks that ran there, and what can become of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stateflow.clock import Clock
from stateflow.lab.faults.simulation.memory_images import MemoryImageStore
from stateflow.lab.faults.simulation.processes import STORE_ERRORS, Notes, Process, Watched
from stateflow.log.base import Cluster
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.store.base import StorePosition, TaskStores
from stateflow.store.memory import MemoryTaskStores

Place = tuple[int, str]
"""Generation and task."""

_GARBAGE_KEY = b"garbage"
_AHEAD_SLOTS = 1_000_000
"""So far that no history's log comes there: a log that has outgrown a wrong claim cannot be told from its own store."""


class MemoryDisk:
    """Stores in memory. What was not flushed may be lost when their process is killed."""

    def __init__(self, clock: Clock, notes: Notes, image_store: MemoryImageStore | None = None) -> None:
        self._clock = clock
        self._notes = notes
        self._image_store = image_store
        self._stores: dict[Place, MemoryTaskStores] = {}
        self._backups: dict[Place, MemoryTaskStores] = {}
        self._runs_ahead = False

    def open(
        self, cluster: Cluster, process: Process, wiring: TaskWiring, _cancelled: Callable[[], bool]
    ) -> Any:
        """The stores of a task, every write to which is a place; from an image where that leaves less to read."""
        place = (wiring.generation, wiring.id)
        names = [store.name for store in wiring.stage.stores]
        stores = self._stores.get(place) or MemoryTaskStores(names, self._clock)
        if self._runs_ahead and names:
            self._runs_ahead = False
            run_ahead(cluster, wiring, stores, self._notes)
        if self._image_store is not None and wiring.changelogs:
            stores = self._image_store.begun_with(cluster, process, wiring, stores)
        self._stores[place] = stores
        return Watched(stores, process, "stores", STORE_ERRORS)

    def found(self, wiring: TaskWiring) -> MemoryTaskStores | None:
        """What is on the disk of a task."""
        return self._stores.get((wiring.generation, wiring.id))

    def crash(self, *, keeps_all: bool) -> None:
        """The process was killed: what it had not flushed is lost, or by chance is not."""
        if not keeps_all:
            for stores in self._stores.values():
                stores.crash()

    def lose(self) -> None:
        """The disk is gone."""
        self._stores.clear()
        self._backups.clear()

    def back_up(self) -> None:
        """Remember what was flushed so far."""
        self._backups = {place: stores.flushed_copy() for place, stores in self._stores.items()}

    def reinstate(self) -> None:
        """Put back what was remembered: stores that are behind."""
        for place, stores in self._backups.items():
            self._stores[place] = stores.flushed_copy()

    def run_ahead(self) -> None:
        """Let the next store that is opened claim more than its log has, with content that nobody wrote."""
        self._runs_ahead = True

    def corrupt(self) -> None:
        """Memory has no blocks that could be damaged."""

    def remove(self) -> None:
        """Nothing is kept outside."""


def run_ahead(cluster: Cluster, wiring: TaskWiring, stores: TaskStores, notes: Notes) -> None:
    """Have the stores of a task claim more than its log has, with content that nobody wrote."""
    for store, changelog in wiring.changelogs.items():
        end = cluster.ranges([changelog], stable=False)[changelog].offset_next
        position = StorePosition(wiring.topic_ids[changelog.topic], end + _AHEAD_SLOTS)
        stores.apply({store: [(_GARBAGE_KEY, b"garbage")]}, {store: position})
    stores.flush()
    notes.struck("ahead", "open", f"the stores of {wiring.id} are ahead of their log")
