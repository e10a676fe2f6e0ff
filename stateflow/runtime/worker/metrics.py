"""The metrics of a worker: what each is called and means, and where its values come from."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Literal

from stateflow.checkpoint.progress import Pace, Progress
from stateflow.clock import Clock
from stateflow.daemon_threads import DaemonThreads
from stateflow.errors import StateflowError
from stateflow.log.base import Cluster
from stateflow.native.loading import native_state
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.worker.figures import FigureRequests, StoreFigures, TaskFigures, WorkerFigures

_LOG = logging.getLogger(__name__)

TURN_SECONDS_MAX = 2.0
"""A poll thread that is busy for longer answers with what it was asked before."""
ENDS_SECONDS_MAX = 2.0
"""Brokers that take longer to say where logs end are left out; both fit into a scrape's ten seconds."""

_TASK = ("app", "stage", "partition")
_STORE = ("app", "stage", "store", "partition")


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as Prometheus knows it, without the prefix ``stateflow_``."""

    name: str
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...]
    text: str


METRICS = (
    Metric("native_core_info", "gauge", ("app", "mode"), "1 for the mode in use: core, or python."),
    Metric("figures_age_seconds", "gauge", ("app",), "How old the figures of tasks are that follow."),
    Metric("tasks", "gauge", ("app", "state"), "Tasks here: running, opening, or waiting to be opened again."),
    Metric("records_total", "counter", _TASK, "Records processed since the task was opened."),
    Metric("commits_total", "counter", _TASK, "Commits since the task was opened."),
    Metric("commit_seconds_total", "counter", _TASK, "Time from the beginning to the end of these commits."),
    Metric("commit_age_seconds", "gauge", _TASK, "Time since the last commit, or since a look found nothing to do."),
    Metric("dirty_bytes", "gauge", _TASK, "Keys and values changed since the last commit."),
    Metric("watermark_timestamp_seconds", "gauge", _TASK, "Event time up to which the input is complete."),
    Metric("input_lag_offsets", "gauge", (*_TASK, "topic"), "Offsets of an input that are not processed yet."),
    Metric("restore_remaining_offsets", "gauge", _TASK, "Offsets of the changelogs that a restore has left to read."),
    Metric("restore_records_per_second", "gauge", _TASK, "Records that a restore reads per second."),
    Metric("restore_eta_seconds", "gauge", _TASK, "Time that the rest of a restore takes at the present rate."),
    Metric("store_keys", "gauge", _STORE, "Keys in a store, as RocksDB estimates them."),
    Metric("changelog_offsets", "gauge", _STORE, "Offsets between the beginning and the end of a changelog."),
    Metric("changelog_distinct_ratio", "gauge", _STORE, "Keys of the store per offset of its changelog, at most 1."),
    Metric("image_bytes", "gauge", _TASK, "Size of the newest image that this worker has made."),
    Metric("image_age_seconds", "gauge", _TASK, "Age of that image."),
    Metric("image_behind_offsets", "gauge", _STORE, "Offsets of the changelog behind that image."),
)  # fmt: skip
BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value; its labels are in the order of its metric's."""

    metric: str
    labels: tuple[str, ...]
    value: float


class RestoreFigures:
    """A ``WorkerObserver`` that remembers how far restores are. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._restores: dict[str, tuple[Progress, Pace]] = {}

    def on_restore(self, task: str, progress: Progress) -> None:
        """A restore has advanced; one that is whole is not remembered."""
        if not progress.slots_remaining:
            self.on_restore_stopped(task)
            return
        with self._lock:
            _, pace = self._restores.get(task, (progress, Pace()))
            pace.observe(progress.seconds, progress.slots_done)
            self._restores[task] = progress, pace

    def on_restore_stopped(self, task: str) -> None:
        """Nothing is left of it; the next one has a pace of its own."""
        with self._lock:
            self._restores.pop(task, None)

    def on_running(self, task: str) -> None:
        """Its restore was over before."""

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None:
        """It is of no matter to a restore."""

    def on_released(self, task: str) -> None:
        """Nothing is restored of what has run."""

    def samples(self, app: str) -> Iterator[Sample]:
        """What restores under way have left."""
        with self._lock:
            found = [
                (task, at.slots_remaining, at.records_per_second, pace.eta_seconds(at.slots_remaining))
                for task, (at, pace) in self._restores.items()
            ]
        for task, remaining, rate, eta_seconds in found:
            stage, _, partition = task.rpartition("-")
            labels = app, stage, partition
            yield Sample("restore_remaining_offsets", labels, remaining)
            yield Sample("restore_records_per_second", labels, rate)
            if eta_seconds is not None:
                yield Sample("restore_eta_seconds", labels, eta_seconds)


class WorkerMetrics:
    """Gathers all samples of one worker when it is asked. Thread-safe."""

    def __init__(
        self, app: str, cluster: Cluster, requests: FigureRequests, restores: RestoreFigures, clock: Clock
    ) -> None:
        self._app = app
        self._cluster = cluster
        self._requests = requests
        self._restores = restores
        self._clock = clock
        self._asking = DaemonThreads("metrics-ends", 1)
        self._asked: Future[dict[TopicPartition, OffsetRange]] | None = None
        self._lock = Lock()
        """Held for one scrape: others wait for it."""

    def close(self) -> None:
        """Ask nothing any more; a question to brokers that do not answer is not waited for."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    def samples(self) -> Iterator[Sample]:
        """All of them, as of now."""
        with self._lock:
            return iter(list(self._gathered()))

    def _gathered(self) -> Iterator[Sample]:
        yield Sample("native_core_info", (self._app, "core" if native_state().in_use else "python"), 1)
        figures = self._requests.ask(TURN_SECONDS_MAX)
        if figures is not None:
            age_seconds = self._clock.monotonic_seconds() - figures.at_seconds
            yield Sample("figures_age_seconds", (self._app,), age_seconds)
            yield from self._of_worker(figures)
        yield from self._restores.samples(self._app)

    def _of_worker(self, figures: WorkerFigures) -> Iterator[Sample]:
        for state, count in (
            ("running", len(figures.tasks)),
            ("opening", figures.opening_total - figures.waiting_total),
            ("waiting", figures.waiting_total),
        ):
            yield Sample("tasks", (self._app, state), count)
        logs = self._logs(figures)
        for task in figures.tasks:
            yield from self._of_task(task, logs)
            for store in task.stores:
                yield from self._of_store(task, store, logs.get(store.changelog))

    def _of_task(self, task: TaskFigures, logs: Mapping[TopicPartition, OffsetRange]) -> Iterator[Sample]:
        labels = self._app, task.stage, str(task.partition)
        yield Sample("records_total", labels, task.records_total)
        yield Sample("commits_total", labels, task.commits_total)
        yield Sample("commit_seconds_total", labels, task.commit_seconds_total)
        yield Sample("commit_age_seconds", labels, task.commit_age_seconds)
        yield Sample("dirty_bytes", labels, task.dirty_bytes)
        if task.watermark_ms >= 0:
            yield Sample("watermark_timestamp_seconds", labels, task.watermark_ms / 1000)
        for source, offset_next in task.offsets.items():
            if source in logs:
                lag = max(0, logs[source].offset_next - offset_next)
                yield Sample("input_lag_offsets", (*labels, source.topic), lag)
        if task.image is not None:
            yield Sample("image_bytes", labels, task.image.size_bytes)
            age_ms = self._clock.now_ms() - task.image.created_ms
            yield Sample("image_age_seconds", labels, age_ms / 1000)

    def _of_store(self, task: TaskFigures, store: StoreFigures, log: OffsetRange | None) -> Iterator[Sample]:
        labels = self._app, task.stage, store.store, str(task.partition)
        if store.keys_estimated is not None:
            yield Sample("store_keys", labels, store.keys_estimated)
        if log is not None:
            yield Sample("changelog_offsets", labels, log.slots)
            if store.keys_estimated is not None and log.slots:
                yield Sample("changelog_distinct_ratio", labels, min(1.0, store.keys_estimated / log.slots))
        reached = None if task.image is None else task.image.offsets.get(store.store)
        if reached is not None:
            yield Sample("image_behind_offsets", labels, store.offset_next - reached)

    def _logs(self, figures: WorkerFigures) -> Mapping[TopicPartition, OffsetRange]:
        """Where inputs and changelogs begin and end; nothing where brokers do not say in time."""
        logs = {source for task in figures.tasks for source in task.offsets}
        logs |= {store.changelog for task in figures.tasks for store in task.stores}
        if not logs or (self._asked is not None and not self._asked.done()):
            return {}  # what was asked before is still waited for: questions must not pile up
        self._asked = self._asking.submit(partial(self._cluster.ranges, sorted(logs), stable=False))
        try:
            return self._asked.result(ENDS_SECONDS_MAX)
        except (StateflowError, NotInTime) as error:
            _LOG.info("Metrics without lags: where logs end was not heard: %s", error)
            return {}
