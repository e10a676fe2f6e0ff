"""State that lies on this disk without being run or copied: how warm it still is, and when it goes.

A worker that lets a task go leaves its store where it is; if the task comes back, only a tail is read. What nobody
wants any more on this disk is deleted after a while, and what is of a retired generation at once: a repartition has
built the new generation's state elsewhere, so disks stay bounded.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path

from stateflow.catalog.model import Catalog
from stateflow.checkpoint.jobs import RestoreJob, has_database, plan_job
from stateflow.checkpoint.planner import TaskPlan
from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.base import Cluster
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.member_records import CopyReport
from stateflow.store.directory import TaskDirectory, find_task_directories, task_directory
from stateflow.store.faults import lock_holder

_LOG = logging.getLogger(__name__)

_REMOVED_FOLDER = ".removed"

LookAtDisk = Callable[[TaskWiring], TaskPlan | None]
"""What restoring a task from this disk would read now; None when nothing of it is here, or somebody has it open."""


class KeptState:
    """What is left on this disk of tasks that this worker neither runs nor copies. Used by one thread."""

    def __init__(self, cluster: Cluster, tasks: Mapping[str, TaskWiring], look: LookAtDisk) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._look = look
        self._reach: dict[str, int] = {}
        """Task → the sum of the offsets that its stores stand for."""
        self._unknown = set(tasks)

    def let_go(self, tasks: Iterable[str]) -> None:
        """These were just closed: look at them next."""
        self._unknown.update(tasks)

    def forget(self, tasks: Iterable[str]) -> None:
        """These were deleted."""
        for task in tasks:
            self._reach.pop(task, None)

    def reports(self, in_use: Set[str]) -> list[CopyReport]:
        """A report of everything that is here and not in use. Raises ``BrokerUnreachable``."""
        for task in in_use & self._reach.keys():
            del self._reach[task]
        for task in sorted(self._unknown & self._tasks.keys() - in_use):
            self._examine(task)
        self._unknown.clear()
        if not self._reach:
            return []
        changelogs = [place for task in self._reach for place in self._tasks[task].changelogs.values()]
        ends = self._cluster.ranges(changelogs)
        reports = []
        for task, reach in sorted(self._reach.items()):
            end = sum(ends[place].offset_next for place in self._tasks[task].changelogs.values())
            reports.append(CopyReport(task=task, state="kept", lag_slots=max(0, end - reach)))
        return reports

    def _examine(self, task: str) -> None:
        try:
            plan = self._look(self._tasks[task])
        except BrokerUnreachable:
            raise  # says nothing about the disk: all is looked at again
        except StateflowError as error:
            _LOG.warning("Task %s: what is on this disk is of no use: %s", task, error)
            return
        if plan is not None and not any(store.from_empty for store in plan.stores):
            self._reach[task] = sum(store.offsets.offset_first for store in plan.stores)


def disk_looker(cluster: Cluster, state_dir: Path, clock: Clock) -> LookAtDisk:
    """Looks at the databases below a state directory, without locking or changing them."""

    def look(wiring: TaskWiring) -> TaskPlan | None:
        place = directory_of(cluster, state_dir, wiring)
        changelogs, topic_ids = dict(wiring.changelogs), dict(wiring.topic_ids)
        job = RestoreJob(wiring.id, place, changelogs, topic_ids, log_policy=wiring.log_policy)
        if place.is_damaged or lock_holder(place.database / "LOCK") is not None or not has_database(job):
            return None
        return plan_job(cluster, job, clock)

    return look


def directory_of(cluster: Cluster, state_dir: Path, wiring: TaskWiring) -> TaskDirectory:
    """Where the active task's store would be: a copy of it is nowhere else."""
    return task_directory(state_dir, wiring.app, cluster.cluster_id, wiring.generation, wiring.id)


class DiskCleaner:
    """Deletes task directories that nobody on this disk wants any more."""

    def __init__(self, state_dir: Path, catalog: Catalog, after_seconds: float, clock: Clock) -> None:
        self._state_dir = state_dir
        self._app = catalog.app.app
        self._generation = catalog.active.generation
        self._gone = {
            entry.generation
            for entry in catalog.generations.values()
            if entry.state in ("retired", "aborted") or entry.generation < self._generation
        }
        self._after_seconds = after_seconds
        self._clock = clock
        self._unwanted_since: dict[str, float] = {}

    def clean_generations(self) -> list[str]:
        """Delete what is left of generations that never come back; returns the tasks."""
        found = [d for d in self._found() if d.identity.generation in self._gone]
        return [directory.identity.task for directory in found if self._remove(directory)]

    def clean(self, wanted: Set[str]) -> list[str]:
        """Delete tasks that were not ``wanted`` on this disk for long enough; returns them."""
        now_seconds = self._clock.monotonic_seconds()
        removed = []
        for directory in self._found():
            task = directory.identity.task
            if directory.identity.generation != self._generation:
                continue
            if task in wanted:
                self._unwanted_since.pop(task, None)
            elif now_seconds - self._unwanted_since.setdefault(task, now_seconds) >= self._after_seconds:
                del self._unwanted_since[task]
                if self._remove(directory):
                    removed.append(task)
        return removed

    def _found(self) -> list[TaskDirectory]:
        return list(find_task_directories(self._state_dir, self._app))

    def _remove(self, directory: TaskDirectory) -> bool:
        """Take it out of the way at once, then delete it; left alone while a process has it open.

        Workers that share a state directory do so at the same time. What cannot be deleted is looked at again later.
        """
        if lock_holder(directory.database / "LOCK") is not None:
            return False
        leaving = self._state_dir / self._app / _REMOVED_FOLDER
        leaving.mkdir(exist_ok=True)
        try:
            directory.path.rename(
                leaving / f"{directory.path.parent.name}-{directory.path.name}-{os.getpid()}"
            )
        except FileNotFoundError:
            return False  # another worker was first
        except OSError as error:
            _LOG.warning("%s, which nobody wants any more, cannot be deleted: %s", directory.path, error)
            return False
        for left in leaving.iterdir():  # also what a process left behind that was killed here
            shutil.rmtree(left, ignore_errors=True)
        _LOG.info(
            "The state of task %s in %s was deleted: it has moved away.",
            directory.identity.task,
            directory.path,
        )
        return True
