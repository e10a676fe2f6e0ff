"""Tasks on their way: opened on a few threads beside the poll loop, cancelled when their partition goes.

One that cannot be opened for a cause that may pass stays on its way: it is opened again after a pause.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from stateflow.clock import Clock
from stateflow.errors import Interrupted, StateflowError
from stateflow.record import TopicPartition
from stateflow.runtime.opening.inline import inline_without
from stateflow.runtime.opening.opening import OpenedTask, Opener
from stateflow.runtime.opening.retries import Retries, WaitingTask
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring

_LOG = logging.getLogger(__name__)

OPENINGS_AT_ONCE = 32
"""An opening mostly waits for brokers. What it does that takes memory is limited by ``restore_threads`` beside."""


@dataclass(slots=True)
class _Starting:
    wiring: TaskWiring
    cancelled: threading.Event = field(default_factory=threading.Event)
    future: Future[OpenedTask] | None = None
    """None while it waits for the pause after a failure."""


class StartingTasks:
    """Primary input → the task being opened for it. Used by the poll thread alone."""

    def __init__(
        self, opener: Opener, settings: WorkerSettings, clock: Clock, pool: Executor | None = None
    ) -> None:
        self._opener = opener
        self._retries = Retries(clock)
        self._revoke_timeout_seconds = settings.revoke_timeout_seconds
        self._pool: Executor = (
            pool
            or inline_without(settings.restore_threads)
            or ThreadPoolExecutor(
                max(OPENINGS_AT_ONCE, settings.restore_threads), thread_name_prefix="opening"
            )
        )
        self._starting: dict[TopicPartition, _Starting] = {}

    def submit(self, primary: TopicPartition, wiring: TaskWiring) -> None:
        """Begin to open a task, at once or after the pause that its last failure has cost it."""
        assert primary not in self._starting, f"{primary} is being opened already"
        self._starting[primary] = _Starting(wiring)
        self._begin(primary)

    def failed(self, primary: TopicPartition, wiring: TaskWiring, error: StateflowError) -> None:
        """A running task was let go of: the next ``submit`` of it waits. Raises what a person must act on."""
        self._retries.failed(primary, wiring.id, error)

    def committed(self, primary: TopicPartition) -> None:
        """A running task has committed: its failures are over."""
        self._retries.committed(primary)

    @property
    def is_unreachable(self) -> bool:
        """True while a task waits for brokers that do not answer."""
        return self._retries.is_unreachable

    @property
    def is_contested(self) -> bool:
        """True while a task fails as if another worker had it."""
        return self._retries.is_contested

    def ready(self) -> Iterator[tuple[TopicPartition, OpenedTask]]:
        """Tasks that finished opening since the last call; raises what stopped one from opening and does not pass.

        Those not taken yet are still kept here then, and are closed with the rest.
        """
        for primary in list(self._starting):
            self._begin(primary)
            future = self._starting[primary].future
            if future is None or not future.done():
                continue
            starting = self._starting.pop(primary)
            try:
                opened = future.result()
            except StateflowError as error:
                self._retries.failed(primary, starting.wiring.id, error)
                self._starting[primary] = _Starting(starting.wiring)
                continue
            yield primary, opened

    def _begin(self, primary: TopicPartition) -> None:
        starting = self._starting[primary]
        if starting.future is None and self._retries.may_open(primary):
            starting.future = self._pool.submit(self._opener.open, starting.wiring, starting.cancelled.is_set)

    def is_opening(self, primary: TopicPartition) -> bool:
        """True unless the task is not on its way, or waits for the pause after a failure."""
        starting = self._starting.get(primary)
        return starting is not None and starting.future is not None

    def wait_a_while(self, timeout_seconds: float) -> None:
        """Until the first of the tasks on their way is opened or has failed, or the time is over."""
        under_way = [each.future for each in self._starting.values() if each.future is not None]
        is_one_done = threading.Event()
        for future in under_way:  # callbacks and not `wait`: a simulation drives what it is to hear of
            future.add_done_callback(lambda _: is_one_done.set())
        if under_way:
            is_one_done.wait(timeout_seconds)

    def primaries(self) -> list[TopicPartition]:
        """Primary inputs of the tasks being opened."""
        return list(self._starting)

    def ids(self) -> list[str]:
        """Ids of the tasks being opened."""
        return [starting.wiring.id for starting in self._starting.values()]

    def waiting(self) -> list[WaitingTask]:
        """Of these, the tasks that have failed before."""
        found = (self._retries.waiting(primary) for primary in self._starting)
        return [task for task in found if task is not None]

    def cancel(self, primary: TopicPartition) -> None:
        """Stop opening the task of this partition, if one is; on return it holds nothing any more."""
        self._retries.forget(primary)
        starting = self._starting.pop(primary, None)
        if starting is not None:
            starting.cancelled.set()
            self._await_cancelled(starting)

    def cancel_all(self) -> None:
        """Stop opening all tasks; they are told together and waited for together."""
        leaving = list(self._starting.values())
        for primary in self._starting:
            self._retries.forget(primary)
        self._starting = {}
        for starting in leaving:
            starting.cancelled.set()
        for starting in leaving:
            self._await_cancelled(starting)

    def close(self) -> None:
        """End the threads."""
        self.cancel_all()
        self._pool.shutdown(wait=True)

    def _await_cancelled(self, starting: _Starting) -> None:
        if starting.future is None or starting.future.cancel():
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
        future.result().abandon()
    elif not isinstance(error, Interrupted):
        _LOG.warning("A task that was taken away had failed to open: %s", error)
