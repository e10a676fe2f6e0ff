"""A streaming data source whose rows are offset ranges: what each task may process in one micro-batch.

Spark keeps the offsets in its checkpoint and so knows, shows and limits the progress of the query as that of
any other source. What a task has *really* processed is its offset committed on Kafka, together with its
state; a row only says up to where the task may go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from stateflow.clock import Clock, SystemClock
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.spark.connection import Connection

SOURCE_NAME = "stateflow-ranges"
ROW_SCHEMA = (
    "stage string, task_partition int, targets map<string, bigint>,"
    " idle array<string>, ended array<string>, look boolean"
)
IDLE = "idle"
"""Key of the offset that holds, per input partition, whether it has been silent at its end for long."""
WAKE = "wake"
"""Key of the offset that holds, per task with timers, how often it was to be woken by the clock so far."""
ENDED = "ended"
"""Key of the offset that holds, per input partition that was declared to be at its end, where that was."""
RUN = "run"
"""Key of the offset that holds which run of the query planned it: each looks once at all tasks with timers."""


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """One task, its input partitions, whether stages behind it wait for its event time, and whether it has timers."""

    stage: str
    partition: int
    inputs: tuple[TopicPartition, ...]
    announces: bool
    has_timers: bool = False

    @property
    def heeds_idle(self) -> bool:
        """True for a task that does something about an input that falls idle."""
        return self.announces or self.has_timers or len(self.inputs) > 1

    @property
    def id(self) -> str:
        """Name of the task inside Spark's offsets."""
        return f"{self.stage}:{self.partition}"


def offset_key(source: TopicPartition) -> str:
    """``topic:partition``, the name of an input partition inside Spark's offsets."""
    return f"{source.topic}:{source.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeOptions:
    """What the source is told, as one JSON option."""

    connection: Connection
    group: str
    tasks: tuple[TaskInputs, ...]
    slots_per_batch_max: int
    """Offset slots per input partition and micro-batch: bounds what one task does between two commits."""
    idle_seconds: float
    wake_seconds: float = 10.0
    """How often a task with timers gets a micro-batch while its input is silent."""
    from_end: bool
    """Where an input without a committed offset begins: at its end, or at its beginning."""
    run: str = ""
    """Which run of the query this is."""
    ends: Mapping[str, int] | None = None
    """By source partition, where its input ends for good; None for input that goes on."""

    def to_json(self) -> str:
        """Written."""
        return json.dumps(
            {
                "brokers": self.connection.brokers,
                "client": dict(self.connection.client),
                "group": self.group,
                "tasks": [
                    [task.stage, task.partition, task.inputs, task.announces, task.has_timers]
                    for task in self.tasks
                ],
                "slots_per_batch_max": self.slots_per_batch_max,
                "idle_seconds": self.idle_seconds,
                "wake_seconds": self.wake_seconds,
                "from_end": self.from_end,
                "run": self.run,
                "ends": self.ends,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> RangeOptions:
        """Read back."""
        fields = json.loads(text)
        return cls(
            connection=Connection(fields["brokers"], fields["client"]),
            group=fields["group"],
            tasks=tuple(
                TaskInputs(stage, partition, tuple(TopicPartition(*source) for source in inputs), *flags)
                for stage, partition, inputs, *flags in fields["tasks"]
            ),
            slots_per_batch_max=fields["slots_per_batch_max"],
            idle_seconds=fields["idle_seconds"],
            wake_seconds=fields["wake_seconds"],
            from_end=fields["from_end"],
            run=fields["run"],
            ends=fields["ends"],
        )


RangeRow = tuple[str, int, dict[str, int], list[str], list[str], bool]
"""Stage, partition, where each input is to be processed to, which of them are idle or have ended, and whether there may
be something to do though all is processed."""


class RangePlanner:
    """Decides how far each task may go next. Free of Spark, so that it can be tested on any log and clock."""

    def __init__(self, cluster: Cluster, options: RangeOptions, clock: Clock) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._sources = [source for task in options.tasks for source in task.inputs]
        self._heard_seconds = dict.fromkeys(self._sources, clock.monotonic_seconds())

    def initial(self) -> dict[str, Any]:
        """The committed offsets; where there are none, the beginning or the end of the log."""
        committed = self._cluster.committed(self._options.group, self._sources, stable=False)
        offsets: dict[str, Any] = {IDLE: dict.fromkeys(map(offset_key, self._sources), False)}
        for source, log in self._cluster.ranges(self._sources).items():
            start = log.offset_next if self._options.from_end else log.offset_first
            offsets[offset_key(source)] = committed[source].offset_next if source in committed else start
        return offsets

    def latest(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """The last stable offsets, at most ``slots_per_batch_max`` on from ``start``."""
        offsets: dict[str, Any] = {}
        for source, log in self._cluster.ranges(self._sources).items():
            first = max(int(start.get(offset_key(source), log.offset_first)), log.offset_first)
            offsets[offset_key(source)] = min(log.offset_next, first + self._options.slots_per_batch_max)
        offsets[IDLE] = self._idle(start, offsets)
        offsets[RUN] = self._options.run
        offsets[ENDED] = dict(start.get(ENDED, {})) if start.get(RUN) == self._options.run else {}
        for key, end in (self._options.ends or {}).items():
            if offsets[key] >= end:
                offsets[ENDED].setdefault(key, offsets[key])
        if any(task.has_timers for task in self._options.tasks):
            wakes = self._clock.now_ms() // round(self._options.wake_seconds * 1000)
            offsets[WAKE] = {task.id: wakes for task in self._options.tasks if task.has_timers}
        return offsets

    def _idle(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> dict[str, bool]:
        """Which input partitions are idle: silent, and processed up to the log's end as it is now.

        The end is that of the log, open transactions included: their records keep a partition awake.
        """
        now_seconds = self._clock.monotonic_seconds()
        for source in self._sources:
            if end[offset_key(source)] != start.get(offset_key(source)):
                self._heard_seconds[source] = now_seconds
        was_idle = start.get(IDLE, {})
        silent = [
            source
            for source in self._sources
            if now_seconds - self._heard_seconds[source] >= self._options.idle_seconds
        ]
        ends = self._cluster.ranges(
            [source for source in silent if not was_idle.get(offset_key(source))], stable=False
        )
        idle = {
            offset_key(source)
            for source in silent
            if source not in ends or ends[source].offset_next <= end[offset_key(source)]
        }
        return {key: key in idle for key in map(offset_key, self._sources)}

    def rows(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[RangeRow]:
        """One row per task that has something to do: new offsets, inputs falling idle, or a look at its timers."""
        behind = self._behind(end) if start.get(RUN) != end.get(RUN) else set()
        rows = []
        for task in self._options.tasks:
            keys = [offset_key(source) for source in task.inputs]
            targets = {key: int(end[key]) for key in keys if key in end}
            idle = [key for key in keys if end[IDLE].get(key)]
            falls_idle = task.heeds_idle and any(not start.get(IDLE, {}).get(key) for key in idle)
            is_woken = len(idle) == len(keys) and end.get(WAKE, {}).get(task.id) != start.get(WAKE, {}).get(
                task.id
            )
            is_new_run = start.get(RUN) != end.get(RUN)
            before = {} if is_new_run else start.get(ENDED, {})
            ended = [key for key in keys if key in targets and end.get(ENDED, {}).get(key) == targets[key]]
            ends_now = any(key not in before for key in ended)
            look = falls_idle or is_woken or ends_now or (is_new_run and task.has_timers)
            if look or any(start.get(key) != target or key in behind for key, target in targets.items()):
                rows.append((task.stage, task.partition, targets, idle, ended, look))
        return rows

    def _behind(self, end: Mapping[str, Any]) -> set[str]:
        """Inputs that are not committed up to ``end``.

        A new run asks, as the one before may have planned a micro-batch and done nothing of it, when it was stopped.
        """
        committed = self._cluster.committed(self._options.group, self._sources, stable=False)
        starts = {source: found.offset_next for source, found in committed.items()}
        if not self._options.from_end:
            starts = {**dict.fromkeys(self._sources, 0), **starts}
        return {
            offset_key(source)
            for source, offset_next in starts.items()
            if offset_next < int(end.get(offset_key(source), 0))
        }


class RangeSource(DataSource):
    """``readStream.format("stateflow-ranges").option("ranges", RangeOptions.to_json())``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE_NAME

    def schema(self) -> str:
        """One row per task."""
        return ROW_SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader, which Spark runs in a process of the driver."""
        return RangeStreamReader(RangeOptions.from_json(self.options["ranges"]))


class RangeStreamReader(DataSourceStreamReader):
    """Spark's view of a :class:`RangePlanner`."""

    def __init__(self, options: RangeOptions) -> None:
        self._options = options
        self._planner: RangePlanner | None = None

    def _opened(self) -> RangePlanner:
        # Connected on first use: Spark copies this object between processes before that.
        if self._planner is None:
            self._planner = RangePlanner(self._options.connection.open(), self._options, SystemClock())
        return self._planner

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's signature
        """Where a new query begins."""
        return self._opened().initial()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: N802, ARG002
        """How far the next micro-batch goes."""
        return self._opened().latest(start)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One Spark partition per row."""
        return [InputPartition(row) for row in self._opened().rows(start, end)]

    def read(self, partition: InputPartition) -> Iterator[RangeRow]:
        """The row itself."""
        yield partition.value
