"""Tasks on their way: opened on a few threads beside the poll loop, cancelled when their partition goes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from stateflow.errors import Interrupted
from stateflow.record import TopicPartition
from stateflow.runtime.inline import InlineExecutor
from stateflow.runtime.opening import OpenedTask, Opener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.wiring import TaskWiring

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Starting:
    wiring: TaskWiring
    cancelled: threading.Event
    future: Future[OpenedTask]


class StartingTasks:
    """Lead partition → the task being opened for it. Used by the poll thread alone."""

    def __init__(self, opener: Opener, settings: WorkerSettings, pool: Executor | None = None) -> None:
        self._opener = opener
        self._revoke_timeout_seconds = settings.revoke_timeout_seconds
        self._pool: Executor = pool or (
            ThreadPoolExecutor(settings.restore_threads, thread_name_prefix="restore")
            if settings.restore_threads
            else InlineExecutor()
        )
        self._starting: dict[TopicPartition, _Starting] = {}

    def submit(self, lead: TopicPartition, wiring: TaskWiring) -> None:
        """Begin to open a task."""
        assert lead not in self._starting, f"{lead} is being opened already"
        cancelled = threading.Event()
        future = self._pool.submit(self._opener.open, wiring, cancelled.is_set)
        self._starting[lead] = _Starting(wiring, cancelled, future)

    def ready(self) -> Iterator[tuple[TopicPartition, OpenedTask]]:
        """Tasks that finished opening since the last call; raises what stopped one from opening.

        Those not taken yet are still kept here then, and are closed with the rest.
        """
        done = [lead for lead, starting in self._starting.items() if starting.future.done()]
        for lead in done:
            yield lead, self._starting.pop(lead).future.result()

    def leads(self) -> list[TopicPartition]:
        """Lead partitions of the tasks being opened."""
        return list(self._starting)

    def ids(self) -> list[str]:
        """Ids of the tasks being opened."""
        return [starting.wiring.id for starting in self._starting.values()]

    def cancel(self, lead: TopicPartition) -> None:
        """Stop opening the task of this partition, if one is; on return it holds nothing any more."""
        starting = self._starting.pop(lead, None)
        if starting is not None:
            starting.cancelled.set()
            self._settle(starting)

    def cancel_all(self) -> None:
        """Stop opening all tasks; they are told together and waited for together."""
        leaving, self._starting = list(self._starting.values()), {}
        for starting in leaving:
            starting.cancelled.set()
        for starting in leaving:
            self._settle(starting)

    def close(self) -> None:
        """End the threads."""
        self.cancel_all()
        self._pool.shutdown(wait=True)

    def _settle(self, starting: _Starting) -> None:
        if starting.future.cancel():
            return
        wait([starting.future], self._revoke_timeout_seconds)
        if not starting.future.done():
            # The step under way will see the flag and release everything; its writer is fenced by the next owner.
            _LOG.warning("Task %s takes long to stop opening.", starting.wiring.id)
            starting.future.add_done_callback(_close_late)
            return
        _close_late(starting.future)


def _close_late(future: Future[OpenedTask]) -> None:
    error = future.exception()
    if error is None:
        future.result().task.abandon()
    elif not isinstance(error, Interrupted):
        _LOG.warning("A task that was taken away had failed to open: %s", error)
