"""Figures of a running worker, for whoever asks from another thread.

Tasks belong to the poll thread. So a question is only noted, and that thread answers with its next turn, from what it
has at hand: while nobody asks, nothing is gathered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stateflow.clock import Clock
from stateflow.record import TopicPartition
from stateflow.runtime.opening.starting import StartingTasks
from stateflow.runtime.snapshots.imaging import ImagedStores, ImageFigures
from stateflow.runtime.worker.commits import RunningTask
from stateflow.runtime.worker.status_reports import StatusReports
from stateflow.store.base import TaskStores
from stateflow.store.rocks import RocksTaskStores


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """One store of a task, as committed."""

    store: str
    changelog: TopicPartition
    offset_next: int
    """Up to where of the changelog its content reaches."""
    keys_estimated: int | None
    """None where nothing on disk could tell."""


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """One running task."""

    stage: str
    partition: int
    records_total: int
    commits_total: int
    commit_seconds_total: float
    """Of the commits that were waited for from their beginning to their end."""
    commit_age_seconds: float
    dirty_bytes: int
    watermark_ms: int
    offsets: Mapping[TopicPartition, int]
    """Next offset to process of each input."""
    stores: tuple[StoreFigures, ...]
    image: ImageFigures | None
    """The newest image that this worker has made of it."""


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One worker at one moment, in seconds of its clock."""

    tasks: tuple[TaskFigures, ...]
    opening_total: int
    waiting_total: int
    """Of those being opened, tasks that have failed before."""
    at_seconds: float


class FigureRequests:
    """Questions of any thread to the poll thread of one worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asking = threading.Lock()
        self._wanted = threading.Event()
        self._answered = threading.Event()
        self._last: WorkerFigures | None = None

    def ask(self, timeout_seconds: float) -> WorkerFigures | None:
        """The figures as of the poll thread's next turn; those of an earlier question if that takes too long."""
        with self._asking:
            self._answered.clear()
            self._wanted.set()
            self._answered.wait(timeout_seconds)
            return self._last

    @property
    def is_wanted(self) -> bool:
        """True while somebody waits for an answer."""
        return self._wanted.is_set()

    def answer(self, running: Iterable[RunningTask], starting: StartingTasks) -> None:
        """Answer what was asked; on the poll thread."""
        now_seconds = self._clock.monotonic_seconds()
        self._last = WorkerFigures(
            tuple(_task_figures(each, now_seconds) for each in running),
            len(starting.ids()),
            len(starting.waiting()),
            now_seconds,
        )
        self._wanted.clear()
        self._answered.set()


class WorkerNews:
    """What a worker tells others at the end of each turn: reports of its own accord, figures when asked."""

    def __init__(self, reports: StatusReports, figures: FigureRequests | None = None) -> None:
        self._reports = reports
        self._figures = figures

    def turn(
        self, tasks: Mapping[TopicPartition, RunningTask], starting: StartingTasks, *, is_last: bool = False
    ) -> None:
        """A turn of the poll thread is over."""
        met = (met for running in tasks.values() for met in running.task.out_of_bounds.met())
        self._reports.turn(met, starting.waiting(), is_last=is_last)
        if self._figures is not None and self._figures.is_wanted:
            self._figures.answer(tasks.values(), starting)

    def close(self) -> None:
        """Release what the reports hold."""
        self._reports.close()


def _task_figures(running: RunningTask, now_seconds: float) -> TaskFigures:
    task = running.task
    return TaskFigures(
        stage=task.wiring.stage.name,
        partition=task.wiring.partition,
        records_total=task.records_total,
        commits_total=running.commits_total,
        commit_seconds_total=running.commit_seconds_total,
        commit_age_seconds=now_seconds - running.committed_seconds,
        dirty_bytes=task.dirty_bytes,
        watermark_ms=task.watermark_ms,
        offsets=dict(task.offsets),
        stores=tuple(
            StoreFigures(store, changelog, position.offset_next, _keys_estimated(task.stores, store))
            for store, changelog in task.wiring.changelogs.items()
            if (position := task.stores.position(store)) is not None
        ),
        image=task.stores.newest if isinstance(task.stores, ImagedStores) else None,
    )


def _keys_estimated(stores: TaskStores, store: str) -> int | None:
    on_disk = stores.on_disk if isinstance(stores, ImagedStores) else stores
    return on_disk.size(store).keys_estimated if isinstance(on_disk, RocksTaskStores) else None
