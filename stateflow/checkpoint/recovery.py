"""Restoring many tasks from the catalog alone: no user code, several at a time, stopped and resumed at will.

Each task is restored by one process: what Python does per record is the bound, and processes share no lock.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from stateflow.checkpoint.image_selection import install_best
from stateflow.checkpoint.jobs import RestoreJob, plan_of
from stateflow.checkpoint.planner import TaskPlan
from stateflow.checkpoint.progress import Progress, combined
from stateflow.checkpoint.restore import Restoration
from stateflow.clock import Clock, SystemClock
from stateflow.errors import ChangelogTrimmed, Interrupted
from stateflow.failpoints import arm_from_environment
from stateflow.log.base import Cluster
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

Connect = Callable[[], Cluster]
Report = Callable[[Progress], None]

_LOG = logging.getLogger(__name__)

_LISTEN_SECONDS = 0.1
ATTEMPTS_MAX = 3
"""How often one restore is planned, as a log's beginning may move past it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done for one task."""

    plan: TaskPlan
    progress: Progress
    image: str | None = None
    """The image that was fetched, if one was."""


def run_job(
    cluster: Cluster,
    job: RestoreJob,
    resources: RocksResources,
    report: Report,
    cancelled: Callable[[], bool],
    clock: Clock | None = None,
) -> Outcome:
    """Restore one task in its directory, from an image first where that leaves less to read.

    A log whose beginning moves past the restore, as the application's workers trim it, is a normal event: then an
    image is there that begins later, and the restore begins with that. Raises ``Interrupted`` soon after ``cancelled``
    turns true, ``StateLocked`` while a worker has the task, ``ChangelogTrimmed`` when no image will do, and what
    ``Restoration`` raises. What was written stays, and the next attempt goes on from there.
    """
    clock = clock or SystemClock()
    for attempt in range(1, ATTEMPTS_MAX + 1):
        image = None if job.images is None else install_best(cluster, job, job.images, clock, cancelled)
        stores = RocksTaskStores.open(job.directory, job.changelogs, resources, clock)
        try:
            plan, progress = _restore(cluster, job, stores, report, cancelled, clock)
            return Outcome(plan, progress, None if image is None else image.name)
        except ChangelogTrimmed as error:
            if attempt == ATTEMPTS_MAX or job.images is None:
                raise
            _LOG.warning("Task %s is planned anew, from an image: %s", job.task, error.message)
        finally:
            stores.close()
    raise AssertionError("the last attempt returns or raises")


def _restore(
    cluster: Cluster,
    job: RestoreJob,
    stores: RocksTaskStores,
    report: Report,
    cancelled: Callable[[], bool],
    clock: Clock,
) -> tuple[TaskPlan, Progress]:
    plan = plan_of(cluster, job, stores, clock)
    restoration = Restoration(cluster, plan, stores, clock)
    try:
        while not restoration.done:
            if cancelled():
                restoration.pause()
                raise interrupted()
            report(restoration.step())
    finally:
        restoration.close()
    report(restoration.progress)
    return plan, restoration.progress


def interrupted() -> Interrupted:
    """The error of a restore that was stopped by the user."""
    return Interrupted("The restore was stopped.", action="start it again: it goes on from where it was.")


def restore_all(
    connect: Connect, jobs: Sequence[RestoreJob], plans: Sequence[TaskPlan], workers: int, report: Report
) -> list[Outcome]:
    """Restore all tasks, ``workers`` at a time, each in a process of its own when there is more than one.

    ``connect`` and ``jobs`` must be such that another process can take them. ``report`` is told the sum over
    all tasks. The first error stops the others and is raised; Ctrl-C likewise, as ``Interrupted``.
    """
    total = _Total(plans, report)
    if workers > 1 and len(jobs) > 1:
        return _restore_in_processes(connect, jobs, min(workers, len(jobs)), total)
    cluster = connect()
    try:
        resources = RocksResources()
        with interrupts_noted() as is_interrupted:
            return [run_job(cluster, job, resources, total.update, is_interrupted) for job in jobs]
    finally:
        cluster.close()


@contextmanager
def interrupts_noted() -> Iterator[Callable[[], bool]]:
    """Inside, Ctrl-C only sets what the yielded function tells; elsewhere than on the main thread it is not ours."""
    noted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield noted.is_set
        return
    before = signal.signal(signal.SIGINT, lambda *_: noted.set())
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGINT, before)


class _Total:
    """The sum over tasks: those not begun count as planned."""

    def __init__(self, plans: Sequence[TaskPlan], report: Report) -> None:
        self._clock = SystemClock()
        self._started_seconds = self._clock.monotonic_seconds()
        self._latest = {plan.task: Progress(plan.task, 0, plan.slots, 0, 0, 0.0) for plan in plans}
        self._report = report

    def update(self, progress: Progress) -> None:
        """One task has advanced."""
        self._latest[progress.name] = progress
        seconds = self._clock.monotonic_seconds() - self._started_seconds
        self._report(combined(f"{len(self._latest)} tasks", list(self._latest.values()), seconds))


# --- several processes ----------------------------------------------------------------------------------

_lane: dict[str, Any] = {}
"""What a child process keeps between its jobs: connection, resources, queue, flag. Empty in the parent."""


def _restore_in_processes(
    connect: Connect, jobs: Sequence[RestoreJob], workers: int, total: _Total
) -> list[Outcome]:
    context = multiprocessing.get_context("spawn")  # librdkafka's and RocksDB's threads do not survive a fork
    news, stop = context.Queue(), context.Event()
    with ProcessPoolExecutor(workers, context, _begin_lane, (connect, news, stop)) as pool:
        with interrupts_held():  # this starts the processes
            futures = [pool.submit(_run_in_lane, job) for job in jobs]
        try:
            while not all(future.done() for future in futures):
                _drain(news, total)
                _raise_first_error(futures)
            return [future.result() for future in futures]
        except KeyboardInterrupt:
            raise interrupted() from None
        finally:
            stop.set()
            for future in futures:
                future.cancel()


def _raise_first_error(futures: Sequence[Future[Outcome]]) -> None:
    for future in futures:
        if future.done():
            future.result()


def _drain(news: Any, total: _Total) -> None:
    try:
        total.update(news.get(timeout=_LISTEN_SECONDS))
    except queue.Empty:
        return


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Children begun in here never see Ctrl-C, which a terminal sends to all: this process decides.

    Blocking is inherited and holds from a child's first instruction on; here the signal is delivered at the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Leave no process behind when the one that asked is killed: a pool's processes would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of a pool"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _begin_lane(connect: Connect, news: Any, stop: Any) -> None:
    end_with_parent()
    arm_from_environment()
    _lane.update(cluster=connect(), resources=RocksResources(), news=news, stopped=stop.is_set)


def _run_in_lane(job: RestoreJob) -> Outcome:
    return run_job(_lane["cluster"], job, _lane["resources"], _lane["news"].put, _lane["stopped"])
