"""What holds event time back: for each task the input that is least far, as its last commit has it.

Seen from outside, like lag: positions stand in the commit records (and, of tasks without state, beside the group's
offsets), so no worker needs to be asked, and none needs to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import changelog_topic, task_id
from stateflow.catalog.stages import stage_inputs, upstream_first
from stateflow.changelog.event_time import NO_EVENT_TIME, UNKNOWN_MS, EventTime, PortTime
from stateflow.changelog.position import InputPosition, from_metadata
from stateflow.checkpoint.tails import read_tails
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition
from stateflow.runtime.event_time.out_of_bounds import shown_instant, shown_span
from stateflow.runtime.progress.lag import InputLag, application_lag


@dataclass(frozen=True, slots=True)
class SlowestInput:
    """A task whose event time waits for one of its inputs while others are further."""

    task: str
    reached_ms: int
    """Its event time; −1 before it is known."""
    waits_for: str
    """The input with the least mark: a source partition, or the task of the stage before that announces it."""
    source: TopicPartition
    """The source partition that is behind it all."""
    mark_ms: int
    """How far the input is that it waits for: nothing with a later time has come there."""
    furthest_ms: int
    """How far the furthest of the others is."""
    slots: int
    """Offsets of the source partition that are not processed yet."""

    @property
    def off_ms(self) -> int | None:
        """How far the furthest input is ahead; None where nothing at all has come on this one."""
        return None if self.mark_ms == UNKNOWN_MS else self.furthest_ms - self.mark_ms

    @property
    def sentence(self) -> str:
        """For people."""
        stands = "unknown" if self.reached_ms == UNKNOWN_MS else shown_instant(self.reached_ms)
        through = "" if self.waits_for == str(self.source) else f" (through {self.waits_for})"
        where = (
            "of which nothing has come"
            if self.off_ms is None
            else f"which is at {shown_instant(self.mark_ms)}, {shown_span(self.off_ms)} behind the furthest"
        )
        state = f"{self.slots} offsets to read" if self.slots else "read to its end and not idle"
        return f"event time of {self.task} is {stands}: it waits for {self.source}{through}, {where}; {state}"


def slowest_inputs(
    cluster: Cluster, catalog: Catalog, lags: list[InputLag] | None = None
) -> list[SlowestInput]:
    """Every task that waits for one input while another is further, upstream first."""
    looked = _Look(catalog, _event_times(cluster, catalog))
    behind = application_lag(cluster, catalog) if lags is None else lags
    return looked.held({lag.source: lag.slots for lag in behind})


@dataclass(frozen=True, slots=True)
class _Waiting:
    waits_for: str
    source: TopicPartition | None
    upstream: str
    mark_ms: int


class _Look:
    """Event times of all tasks at about one moment."""

    def __init__(self, catalog: Catalog, event_times: Mapping[str, EventTime]) -> None:
        self._catalog = catalog
        self._event_times = event_times
        self._tasks = {
            task_id(stage, partition): (stage, partition)
            for stage in upstream_first(catalog)
            for partition in range(catalog.partitions(stage))
        }

    def held(self, slots: Mapping[TopicPartition, int]) -> list[SlowestInput]:
        """Those that wait."""
        found = []
        for task in self._tasks:
            if task not in self._event_times:
                continue
            inputs = self._inputs(task)
            if len(inputs) < 2:
                continue
            least, furthest = (choose(inputs, key=_mark) for choose in (min, max))
            source = self._source(least)
            if least.mark_ms < furthest.mark_ms and source is not None:
                reached_ms = self._event_times[task].reached_ms
                found.append(
                    SlowestInput(
                        task,
                        reached_ms,
                        least.waits_for,
                        source,
                        least.mark_ms,
                        furthest.mark_ms,
                        slots.get(source, 0),
                    )
                )
        return found

    def _source(self, waiting: _Waiting) -> TopicPartition | None:
        """The source partition at the beginning of the chain; None where none is behind."""
        while waiting.source is None:
            inputs = self._inputs(waiting.upstream)
            if not inputs:
                return None
            waiting = min(inputs, key=_mark)
        return waiting.source

    def _inputs(self, task: str) -> list[_Waiting]:
        """What a task waits for: all its upstreams but the idle ones; each of them, before its first commit."""
        stage, partition = self._tasks[task]
        known = {port.name: port for port in self._event_times.get(task, NO_EVENT_TIME).ports}
        found: list[_Waiting] = []
        for entry in self._catalog.stages[stage].inputs:
            count = 1 if entry.upstream is None else self._catalog.partitions(entry.upstream)
            port = known.get(entry.name, PortTime(entry.name, (UNKNOWN_MS,) * count))
            for number, mark_ms in _awake(port):
                if entry.upstream is None:
                    source = TopicPartition(entry.name, partition)
                    found.append(_Waiting(str(source), source, "", mark_ms))
                else:
                    name = task_id(entry.upstream, number)
                    found.append(_Waiting(name, None, name, mark_ms))
        return found


def _awake(port: PortTime) -> list[tuple[int, int]]:
    return [
        (number, mark)
        for number, mark in enumerate(port.marks_ms)
        if number not in port.idle and number not in port.ended
    ]


def _mark(waiting: _Waiting) -> int:
    return waiting.mark_ms


def _event_times(cluster: Cluster, catalog: Catalog) -> dict[str, EventTime]:
    """By task, as its last commit has it; tasks that have never committed are absent."""
    app = catalog.app.app
    changelogs: dict[str, TopicPartition] = {}
    stateless: dict[TopicPartition, str] = {}
    for stage in catalog.stages:
        store = next((store.name for store in catalog.stores.values() if store.stage == stage), None)
        for partition in range(catalog.partitions(stage)):
            task = task_id(stage, partition)
            if store is not None:
                topic = changelog_topic(app, store, catalog.changelog_generation(stage))
                changelogs[task] = TopicPartition(topic, partition)
            else:
                stateless.update(dict.fromkeys(_read_by(catalog, stage, partition), task))
    found: dict[str, InputPosition] = {}
    for task, tail in read_tails(cluster, changelogs).items():
        if tail.last is not None:
            found[task] = tail.last.position
    for source, committed in cluster.committed(app, stateless, stable=False).items():
        found[stateless[source]] = from_metadata(committed.metadata)
    return {task: position.event_time for task, position in found.items()}


def _read_by(catalog: Catalog, stage: str, partition: int) -> list[TopicPartition]:
    return [source for source in stage_inputs(catalog, stage) if source.partition == partition]
