"""The progress of an application on Spark as lines of JSON in a file: for whoever watches it without Spark's UI.

Each line stands alone: what was read since the run began, at which rate since the line before, how far each stage is
behind. ``records_*`` count records that tasks have processed and committed: tasks of micro-batches give them with their
results, long-running workers tell of them meanwhile (``worker_reports.py``).
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import stage_of
from stateflow.clock import Clock
from stateflow.errors import ConfigError, StateflowError
from stateflow.log.base import Cluster
from stateflow.runtime.progress.lag import InputLag, application_lag
from stateflow.runtime.worker.member_records import ProgressReport
from stateflow.spark.epoch import EpochResult
from stateflow.spark.worker_reports import WorkerReports

_LOG = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
"""Committed offsets and ends are asked for so often at most, however short micro-batches are."""


class ProgressFile:
    """Appends a line whenever it is asked to. Not thread-safe: one thread notes and writes at a time."""

    def __init__(
        self,
        path: Path,
        cluster: Cluster,
        catalog: Catalog,
        clock: Clock,
        reports: WorkerReports | None = None,
    ) -> None:
        """With ``reports`` of long-running workers, else of micro-batches. Raises ``ConfigError`` for a bad file."""
        self._path = path
        self._cluster = cluster
        self._catalog = catalog
        self._reports = reports
        self._told: list[ProgressReport] = []
        self._sent: Counter[str] = Counter()
        self._clock = clock
        self._records: Counter[str] = Counter()
        self._epochs: Counter[str] = Counter()
        self._lags: list[InputLag] = []
        self._first: Mapping[Any, int] = {}
        self._begun_seconds = self._looked_seconds = clock.monotonic_seconds()
        self._before = (self._begun_seconds, 0, 0)
        self._is_failing = False
        try:
            path.touch()
        except OSError as error:
            raise ConfigError(
                f"the progress cannot be written to {path} ({error.strerror}).",
                action="name a file in a directory that exists and is yours.",
            ) from error
        self._look()
        self._first = {lag.source: lag.offset_next for lag in self._lags}

    def look_at(self, catalog: Catalog) -> None:
        """From now on tell of the tasks of this catalog: sources have got more partitions."""
        self._catalog = catalog

    def note(self, results: Iterable[EpochResult]) -> None:
        """What tasks have committed in a micro-batch; those that found an earlier attempt's work done count nothing."""
        for result in results:
            stage = stage_of(result.task)
            self._records[stage] += result.records_total
            self._epochs[stage] += result.is_opened

    def write(self, *, batch: Mapping[str, Any] | None = None, has_ended: bool = False) -> None:
        """Append a line. A disk that is full, or brokers that do not answer, are no reason to end the application."""
        now_seconds = self._clock.monotonic_seconds()
        if has_ended or now_seconds - self._looked_seconds >= _LOOK_SECONDS:
            self._look()
            self._hear()
        try:
            with self._path.open("a", encoding="utf-8") as out:
                out.write(json.dumps(self._line(now_seconds, batch, has_ended=has_ended)) + "\n")
        except OSError as error:
            if not self._is_failing:
                _LOG.warning("The progress cannot be written to %s: %s", self._path, error)
            self._is_failing = True
        else:
            self._is_failing = False

    # --- inside ---------------------------------------------------------------------------------------

    def _line(
        self, now_seconds: float, batch: Mapping[str, Any] | None, *, has_ended: bool
    ) -> dict[str, Any]:
        stages = self._stages()
        records, slots = self._records.total(), sum(stage["slots_total"] for stage in stages.values())
        before_seconds, before_records, before_slots = self._before
        seconds = max(now_seconds - before_seconds, 1e-9)
        self._before = (now_seconds, records, slots)
        return {
            "time_ms": self._clock.now_ms(),
            "app": self._catalog.app.app,
            "runner": "micro-batch" if self._reports is None else "long-running",
            "seconds": round(now_seconds - self._begun_seconds, 3),
            "records_total": records,
            "records_per_second": round((records - before_records) / seconds, 1),
            "sent_total": None if self._reports is None else self._sent.total(),
            "slots_total": slots,
            "slots_per_second": round((slots - before_slots) / seconds, 1),
            "behind_slots": sum(stage["behind_slots"] for stage in stages.values()),
            "stages": stages,
            "workers": None if self._reports is None else workers(self._told),
            "batch": batch,
            "ended": has_ended,
        }

    def _stages(self) -> dict[str, dict[str, Any]]:
        lags: defaultdict[str, list[InputLag]] = defaultdict(list)
        for lag in self._lags:
            lags[stage_of(lag.task)].append(lag)
        return {
            stage: {
                "records_total": self._records[stage],
                "sent_total": None if self._reports is None else self._sent[stage],
                "epochs_total": self._epochs[stage],
                "slots_total": sum(
                    max(0, lag.offset_next - self._first.get(lag.source, lag.log.offset_first)) for lag in own
                ),
                "behind_slots": sum(lag.slots for lag in own),
                "tasks": None if self._reports is None else tasks(self._told, own),
            }
            for stage, own in lags.items()
        }

    def _look(self) -> None:
        self._looked_seconds = self._clock.monotonic_seconds()
        try:
            self._lags = application_lag(self._cluster, self._catalog)
        except StateflowError as error:
            _LOG.info("How far the application is cannot be seen: %s", error.message)

    def _hear(self) -> None:
        """Count anew what all workers of this run have told, those that are gone, too."""
        if self._reports is None:
            return
        try:
            self._told = self._reports.read()
        except StateflowError as error:
            _LOG.info("What the workers have told cannot be read: %s", error.message)
        for counted in (self._records, self._sent, self._epochs):
            counted.clear()
        for report in self._told:
            for task, done in report.tasks.items():
                stage = stage_of(task)
                self._records[stage] += done.records_total
                self._sent[stage] += done.sent_total
                self._epochs[stage] += done.commits_total


def tasks(told: Sequence[ProgressReport], lags: Iterable[InputLag]) -> dict[str, dict[str, Any]]:
    """What was committed of each task, how far it is behind, and how many lives of workers have had it."""
    behind: Counter[str] = Counter()
    for lag in lags:
        behind[lag.task] += lag.slots
    return {
        task: {
            "records_total": sum(each.tasks[task].records_total for each in had),
            "sent_total": sum(each.tasks[task].sent_total for each in had),
            "epochs_total": sum(each.tasks[task].commits_total for each in had),
            "behind_slots": slots,
            "workers_total": len({each.life for each in told if task in each.tasks or task in each.running}),
        }
        for task, slots in sorted(behind.items())
        for had in [[each for each in told if task in each.tasks]]
    }


def workers(told: Iterable[ProgressReport]) -> dict[str, dict[str, Any]]:
    """By lane, how often its worker was started again, by Spark or by the driver, and the tasks that it has."""
    lives: defaultdict[int, list[ProgressReport]] = defaultdict(list)
    for report in told:
        lives[report.lane].append(report)
    return {
        str(lane): {
            "restarts_total": len(own) - 1,
            "tasks": list(max(own, key=lambda report: report.written_ms).running),
        }
        for lane, own in sorted(lives.items())
    }
