"""The progress of an application on Spark as lines of JSON in a file: for whoever watches it without Spark's UI.

Each line stands alone: what was read since the run began, at which rate since the line before, how far each stage is
behind. ``records_*`` count records that tasks have processed and committed; they are null where the driver cannot know
them (long-running workers: their offsets are seen on Kafka, and markers and compacted gaps are among those).
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from stateflow.catalog.model import Catalog
from stateflow.clock import Clock
from stateflow.errors import ConfigError, StateflowError
from stateflow.log.base import Cluster
from stateflow.runtime.worker.lag import InputLag, application_lag
from stateflow.spark.epoch import EpochResult

_LOG = logging.getLogger(__name__)

Runner = Literal["micro-batch", "long-running"]

_LOOK_SECONDS = 2.0
"""Committed offsets and ends are asked for so often at most, however short micro-batches are."""


class ProgressFile:
    """Appends a line whenever it is asked to. Not thread-safe: one thread notes and writes at a time."""

    def __init__(self, path: Path, cluster: Cluster, catalog: Catalog, runner: Runner, clock: Clock) -> None:
        """Raises ``ConfigError`` for a file that cannot be written."""
        self._path = path
        self._cluster = cluster
        self._catalog = catalog
        self._runner: Runner = runner
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

    def note(self, results: Iterable[EpochResult]) -> None:
        """What tasks have committed in a micro-batch; those that found an earlier attempt's work done count nothing."""
        for result in results:
            stage = result.task.rpartition("-")[0]
            self._records[stage] += result.records_total
            self._epochs[stage] += result.is_opened

    def write(self, *, batch: Mapping[str, Any] | None = None, has_ended: bool = False) -> None:
        """Append a line. A disk that is full, or brokers that do not answer, are no reason to end the application."""
        now_seconds = self._clock.monotonic_seconds()
        if has_ended or now_seconds - self._looked_seconds >= _LOOK_SECONDS:
            self._look()
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
        counts = self._runner == "micro-batch"
        return {
            "time_ms": self._clock.now_ms(),
            "app": self._catalog.app.app,
            "runner": self._runner,
            "seconds": round(now_seconds - self._begun_seconds, 3),
            "records_total": records if counts else None,
            "records_per_second": round((records - before_records) / seconds, 1) if counts else None,
            "slots_total": slots,
            "slots_per_second": round((slots - before_slots) / seconds, 1),
            "behind_slots": sum(stage["behind_slots"] for stage in stages.values()),
            "stages": stages,
            "batch": batch,
            "ended": has_ended,
        }

    def _stages(self) -> dict[str, dict[str, Any]]:
        lags: defaultdict[str, list[InputLag]] = defaultdict(list)
        for lag in self._lags:
            lags[lag.task.rpartition("-")[0]].append(lag)
        counts = self._runner == "micro-batch"
        return {
            stage: {
                "records_total": self._records[stage] if counts else None,
                "epochs_total": self._epochs[stage] if counts else None,
                "slots_total": sum(
                    max(0, lag.offset_next - self._first.get(lag.source, lag.log.offset_first)) for lag in own
                ),
                "behind_slots": sum(lag.slots for lag in own),
            }
            for stage, own in lags.items()
        }

    def _look(self) -> None:
        self._looked_seconds = self._clock.monotonic_seconds()
        try:
            self._lags = application_lag(self._cluster, self._catalog)
        except StateflowError as error:
            _LOG.info("How far the application is cannot be seen: %s", error.message)
