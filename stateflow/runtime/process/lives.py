"""What a process runs one after another: each worker, or query, reads what sources have got since the one before."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from stateflow.errors import PartitionsAdded
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.worker import Worker

_LOG = logging.getLogger(__name__)

_LOOKS_MAX = 10
"""How often the catalog is looked at for partitions that a consumer was told of: brokers hear of them one by one."""
_LOOK_SECONDS = 1.0


class WorkersInTurn:
    """Runs workers one after another until ``stop``, which may be called from any thread and between two of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._worker: Worker | None = None

    def stop(self) -> None:
        """Ask the worker of now to commit and return; no other follows."""
        self._stopping.set()
        with self._lock:
            if self._worker is not None:
                self._worker.stop()

    def run(self, worker: Worker) -> None:
        """Run one worker to its end."""
        with self._lock:
            self._worker = worker
            if self._stopping.is_set():
                worker.stop()
        try:
            worker.run()
        except PartitionsAdded:
            worker.quiet.say(None)
            raise
        finally:
            with self._lock:
                self._worker = None

    def run_all(
        self,
        live: Callable[[Wiring], None],
        wiring: Wiring,
        prepared_anew: Callable[[], Wiring] | None,
    ) -> None:
        """Run ``live``, and again with what is prepared anew whenever sources have got more partitions."""
        run_with_added_partitions(live, wiring, prepared_anew, self._stopping)


def run_with_added_partitions(
    live: Callable[[Wiring], None],
    wiring: Wiring,
    prepared_anew: Callable[[], Wiring] | None,
    stopping: threading.Event,
) -> None:
    """Run ``live`` until it returns, and again with what is prepared anew as often as it raises ``PartitionsAdded``.

    Without ``prepared_anew`` that is raised here.
    """
    while True:
        try:
            live(wiring)
            return
        except PartitionsAdded as error:
            if prepared_anew is None:
                raise
            _LOG.warning("All tasks are opened anew: %s", error.message)
            found = wiring_of_added_partitions(wiring, prepared_anew, error, stopping)
        if found is None:
            return
        wiring = found


def wiring_of_added_partitions(
    before: Wiring, prepared_anew: Callable[[], Wiring], error: PartitionsAdded, stopping: threading.Event
) -> Wiring | None:
    """A wiring with more tasks; None when asked to stop. Raises ``error`` if there is still none after a while."""
    for _ in range(_LOOKS_MAX):
        if stopping.is_set():
            return None
        found = prepared_anew()
        if len(found.tasks()) > len(before.tasks()):
            return found
        stopping.wait(_LOOK_SECONDS)
    raise error
