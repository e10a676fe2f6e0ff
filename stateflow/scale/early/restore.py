"""Restoring an application newest first: keys that are asked for are answered on the way, the result is as ever.

One thread decides what is read next, as late as it can: ranges that an open question waits for come first, then those
of the changelog with the fewest begun. Lanes, processes as a rule, read. What is asked, by whatever thread, is answered
between two ranges. The database of a task is made when all of its ranges are there (``early.task``), and then equals
that of ``checkpoint.restore`` byte for byte.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from stateflow.catalog.model import Catalog
from stateflow.checkpoint.decisions import Decided, decide
from stateflow.checkpoint.image_selection import images_of, install_best
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.progress import Pace, Progress, combined
from stateflow.checkpoint.recovery import ATTEMPTS_MAX, Outcome, interrupted
from stateflow.clock import Clock
from stateflow.errors import OffsetOutOfRange
from stateflow.log.base import Cluster
from stateflow.memory import memory_shares
from stateflow.scale.early.asks import Answer, Ask, Asks, Bound
from stateflow.scale.early.files import ReadJob, ReadRange, read_into_files
from stateflow.scale.early.found import Found
from stateflow.scale.early.open_tasks import OpenTasks
from stateflow.scale.early.ranges import RangeSizes
from stateflow.scale.early.task import EarlyTask
from stateflow.scale.engine import Lanes
from stateflow.store.faults import refuse_locked
from stateflow.store.resources import RocksResources

_LOG = logging.getLogger(__name__)

_TURN_SECONDS = 0.05
"""A question waits for the decider so long at most while ranges are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """Who is told what, and who may stop it; all are called by the restore's own thread."""

    report: Callable[[Progress], None] = lambda _: None
    on_answer: Callable[[Answer], None] = lambda _: None
    cancelled: Callable[[], bool] = lambda: False


class EarlyRestore:
    """One application's restore. ``ask`` may be called by any thread, before ``run`` too."""

    def __init__(
        self,
        cluster: Cluster,
        catalog: Catalog,
        jobs: Sequence[RestoreJob],
        lanes: Lanes,
        clock: Clock,
        sizes: RangeSizes | None = None,
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._lanes = lanes
        self._clock = clock
        self._asks = Asks(catalog, [job.task for job in jobs])
        self._resources = RocksResources()
        self._sizes = sizes or RangeSizes(bytes_max=memory_shares().restore_bytes_each(lanes.lanes) // 2)
        self._tasks: dict[str, EarlyTask] = {}
        self._reading: dict[Future[ReadRange], tuple[EarlyTask, ReadJob]] = {}
        self._installing: dict[Future[str | None], EarlyTask] = {}
        self._started_seconds = clock.monotonic_seconds()
        self._pace = Pace()
        self._open_tasks = OpenTasks(self._tasks)
        self._is_warm = False
        """Lanes have read something. Processes take a second to start: until then ranges are read here, too."""
        self._stopped = threading.Event()
        self.is_whole = False
        """Everything is restored: what is asked from now on is in the local stores."""

    def ask(self, store: str, key: str) -> Ask:
        """Ask for a key, written as a person writes it. Raises ``ConfigError`` for what cannot be asked."""
        return self._asks.ask(store, key, self._clock.monotonic_seconds())

    @property
    def tasks(self) -> Sequence[EarlyTask]:
        """All of them; the restore's own thread alone may do more than look at them."""
        return tuple(self._tasks.values())

    @property
    def progress(self) -> Progress:
        """How far all tasks are together."""
        parts = [task.progress for task in self._tasks.values()]
        seconds = self._clock.monotonic_seconds() - self._started_seconds
        return combined(f"{len(parts)} tasks", parts, seconds)

    def run(self, watchers: Watchers | None = None) -> list[Outcome]:
        """Restore all tasks; on return all questions are answered.

        Raises what ``checkpoint.recovery.run_job`` raises; what was read stays, and the next attempt goes on from
        there. A log whose beginning moves past the restore is planned anew, from an image.
        """
        watchers = watchers or Watchers()
        try:
            for attempt in range(1, ATTEMPTS_MAX + 1):
                try:
                    return self._attempt(watchers)
                except OffsetOutOfRange as error:
                    if attempt == ATTEMPTS_MAX:
                        raise
                    _LOG.warning("The restore is planned anew: %s", error.message)
            raise AssertionError("the last attempt returns or raises")
        finally:
            self._asks.close()

    # --- inside ---------------------------------------------------------------------------------------

    def _attempt(self, watchers: Watchers) -> list[Outcome]:
        self._tasks = {job.task: self._task(decide(self._cluster, job, self._clock)) for job in self._jobs}
        for ask in self._asks.open:
            ask.plan_anew()
        with ThreadPoolExecutor(1, thread_name_prefix="images") as fetching:
            try:
                for job in self._jobs:
                    refuse_locked(job.directory)
                self._open_tasks = OpenTasks(self._tasks)
                self._admit()
                self._answer(watchers)
                while not all(task.is_done for task in self._tasks.values()):
                    self._turn(watchers, fetching)
            finally:
                self._stop()
        self.is_whole = True
        self._asks.refuse_more()  # or who asks without end would keep this from ending
        self._answer(watchers)
        watchers.report(self.progress)
        return [Outcome(task.plan, task.progress, task.image) for task in self._tasks.values()]

    def _task(self, decided: Decided) -> EarlyTask:
        if decided.refused is not None:
            raise decided.refused
        return EarlyTask(self._cluster, decided, self._resources, self._clock, self._sizes)

    def _turn(self, watchers: Watchers, fetching: ThreadPoolExecutor) -> None:
        if watchers.cancelled():
            raise interrupted()
        self._admit()
        here = None if self._is_warm else self._chosen()
        job = None if here is None else here[0].next_job(here[1])
        self._begin_reads()
        self._begin_images(fetching)
        if here is not None and job is not None:
            here[0].note(read_into_files(self._cluster, job))
        self._collect()
        self._answer(watchers)
        for task in self._tasks.values():
            if not task.is_done and task.is_covered:
                self._finish(task)
        progress = self.progress
        self._pace.observe(progress.seconds, progress.slots_done)
        watchers.report(progress)

    def _admit(self) -> None:
        busy = [task for task, _ in self._reading.values()] + [*self._installing.values()]
        self._open_tasks.admit(self._asks.open, busy)

    def _begin_reads(self) -> None:
        while len(self._reading) < self._lanes.lanes:
            chosen = self._chosen()
            if chosen is None:
                return
            task, store = chosen
            job = task.next_job(store)
            self._reading[self._lanes.submit(read_into_files, job)] = (task, job)

    def _chosen(self) -> tuple[EarlyTask, str] | None:
        """The store of which a range is read next: what is asked for first, else the one with the fewest begun."""
        for ask in self._asks.open:
            for name in ask.tasks:
                for store in self._tasks[name].stores_to_read(ask):
                    return self._tasks[name], store
        waiting = [(task, store) for task in self._tasks.values() for store in task.stores_to_read()]
        return min(waiting, key=lambda pair: pair[0].begun(pair[1]), default=None)

    def _begin_images(self, fetching: ThreadPoolExecutor) -> None:
        for task in self._tasks.values():
            if task.waits_for_image and not task.is_installing:
                task.is_installing = True
                self._installing[fetching.submit(self._install, task.job)] = task

    def _install(self, job: RestoreJob) -> str | None:
        assert job.images is not None, "there is a place, as an image was chosen"
        image = install_best(self._cluster, job, job.images, self._clock, self._stopped.is_set)
        return None if image is None else image.name

    def _collect(self) -> None:
        under_way = self._under_way()
        if not under_way:
            return
        done, _ = wait(under_way, _TURN_SECONDS, FIRST_COMPLETED)
        for read in [future for future in self._reading if future in done]:
            self._reading.pop(read)[0].note(read.result())
            self._is_warm = True
        for installed in [future for future in self._installing if future in done]:
            self._installing.pop(installed).install(installed.result())

    def _under_way(self) -> list[Future[Any]]:
        return [*self._reading, *self._installing]

    def _finish(self, task: EarlyTask) -> None:
        if task.is_stale:
            raise OffsetOutOfRange(
                f"the changelogs of {task.job.task} forgot deletions while their tails were read.",
                action="raise delete.retention.ms of the topics, and restore again.",
            )
        task.finish()

    def _stop(self) -> None:
        """Wait for the ranges that are being read: nobody else may write to the tasks' folders after this."""
        self._stopped.set()
        for future in self._under_way():
            future.cancel()
        wait(self._under_way())
        self._reading.clear()
        self._installing.clear()
        for task in self._tasks.values():
            task.close()
        self._stopped.clear()

    # --- answers --------------------------------------------------------------------------------------

    def _answer(self, watchers: Watchers) -> None:
        for ask in self._asks.open:
            if ask.bound is None:
                ask.bound = self.bound(ask)
            found = self._found(ask)
            if found is not None:
                task, what = found
                seconds = self._clock.monotonic_seconds() - ask.asked_seconds
                answer = Answer(
                    ask.entry.name, ask.key, what.rows, what.source, task, what.offsets, round(seconds, 3)
                )
                ask.end(answer)
                watchers.on_answer(answer)

    def _found(self, ask: Ask) -> tuple[str | None, Found] | None:
        """The first task that has the key; ``nothing`` once none has it."""
        for name in [name for name in ask.tasks if name not in ask.lacking]:
            found = self._tasks[name].look(ask)
            if found is not None and found.source != "nothing":
                return name, found
            if found is not None:
                ask.lacking.add(name)
        return (None, Found((), "nothing", None)) if len(ask.lacking) == len(ask.tasks) else None

    def bound(self, ask: Ask) -> Bound:
        """At the latest when a question is answered: behind those asked before and the ranges that are being read."""
        open_asks = self._asks.open
        asks = [*open_asks[: open_asks.index(ask)], ask] if ask in open_asks else [*open_asks, ask]
        tasks = {name: self._tasks[name] for each in asks for name in each.tasks}
        slots = sum(task.slots_awaited(asks) for task in tasks.values()) + sum(
            job.offsets.slots
            for task, job in self._reading.values()
            if not any(task.job.task in each.tasks and each.awaits(job.store) for each in asks)
        )
        images = sum(self._image_bytes(task) for task in tasks.values())
        return Bound(slots, images, self._pace.eta_seconds(slots))

    def _image_bytes(self, task: EarlyTask) -> int:
        job = task.job
        if task.has_image or task.image is None or job.images is None:
            return 0
        images = images_of(job, open_objects(job.images), self._clock)
        return images.load(task.image).size_bytes
