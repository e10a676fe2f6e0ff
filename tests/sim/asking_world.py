"""The numbering application of the crash tests, whose writers ask somebody before each of their commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stateflow.catalog.model import Guarantee
from stateflow.catalog.names import control_topic
from stateflow.runtime.background import OWN_THREADS, Executors
from stateflow.runtime.worker.figures import WorkerNews
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.sim.asking_writer import AskingWriter
from tests.sim.counting import APP
from tests.sim.test_worker_crashes import World


class AskingWorld(World):
    """In the place of its cluster; ``before_commit`` is called before each commit of a task."""

    def __init__(self, before_commit: Callable[[], None], guarantee: Guarantee = "exactly-once") -> None:
        super().__init__(guarantee)
        self._before_commit = before_commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def writer(self, transactional_id: str | None = None) -> Any:
        """A writer of the cluster, which asks if it has transactions."""
        made = self.cluster.writer(transactional_id)
        is_of_task = transactional_id not in (None, control_topic(APP))
        return made if not is_of_task else AskingWriter(made, self._before_commit)

    def begin(self, executors: Executors = OWN_THREADS, news: WorkerNews | None = None) -> Worker:
        """A worker, on the disks that the one before has left."""

        def open_stores(wiring: Any, _cancelled: object) -> MemoryTaskStores:
            names = [store.name for store in wiring.stage.stores]
            return self.disks.setdefault(wiring.id, MemoryTaskStores(names, self.clock))

        return Worker(
            self, self.wiring, open_stores, self.settings, self.clock, executors=executors, news=news
        )
