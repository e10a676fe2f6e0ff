"""How far an application is behind its input, seen from outside: no worker needs to be asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import stage_and_partition, task_id
from stateflow.catalog.stages import stage_inputs, upstream_first
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class InputLag:
    """One input partition of one task, in offset slots (markers and compacted gaps count)."""

    task: str
    source: TopicPartition
    offset_next: int
    """Committed position; the log's start when nothing is committed."""
    log: OffsetRange

    @property
    def slots(self) -> int:
        """Slots still to be read."""
        return max(0, self.log.offset_next - self.offset_next)


def committed_inputs(cluster: Cluster, catalog: Catalog, task: str) -> dict[str, int]:
    """What is committed of a task's inputs, as an image says it for people."""
    stage, partition = stage_and_partition(task)
    sources = [source for source in stage_inputs(catalog, stage) if source.partition == partition]
    found = cluster.committed(catalog.app.app, sources, stable=False)
    return {str(source): committed.offset_next for source, committed in found.items()}


def source_ends(cluster: Cluster, catalog: Catalog) -> dict[TopicPartition, int]:
    """Where every source partition of the application ends now, records of open transactions included."""
    sources = {
        TopicPartition(port.name, partition)
        for stage, entry in catalog.stages.items()
        for port in entry.inputs
        if port.upstream is None
        for partition in range(catalog.partitions(stage))
    }
    logs = cluster.ranges(sorted(sources), stable=False)
    return {source: log.offset_next for source, log in logs.items()}


def application_lag(cluster: Cluster, catalog: Catalog) -> list[InputLag]:
    """The lag of every input partition, upstream stages first.

    Each stage is looked at after the one before it, and if all are at their end, their ends are looked at once more:
    what an application writes to a topic that it reads goes round. If all are at their end then, too, it has drained:
    a stage's output is committed together with its input. Records of transactions that are still open count.
    """
    lags = [lag for stage in upstream_first(catalog) for lag in _stage_lag(cluster, catalog, stage)]
    return lags if any(lag.slots for lag in lags) else _looked_at_again(cluster, lags)


def is_drained(cluster: Cluster, catalog: Catalog) -> bool:
    """True when everything that was in the input has been processed and committed by every stage.

    That is when ``application_lag`` finds none. Behind a stage that has some, no other is looked at.
    """
    lags: list[InputLag] = []
    for stage in upstream_first(catalog):
        found = _stage_lag(cluster, catalog, stage)
        if any(lag.slots for lag in found):
            return False
        lags += found
    return not any(lag.slots for lag in _looked_at_again(cluster, lags))


def _stage_lag(cluster: Cluster, catalog: Catalog, stage: str) -> list[InputLag]:
    inputs = stage_inputs(catalog, stage)
    committed = cluster.committed(catalog.app.app, inputs, stable=False)
    lags: list[InputLag] = []
    for source, log in cluster.ranges(inputs, stable=False).items():
        position = committed.get(source)
        offset_next = position.offset_next if position else log.offset_first
        lags.append(InputLag(task_id(stage, source.partition), source, offset_next, log))
    return lags


def _looked_at_again(cluster: Cluster, lags: list[InputLag]) -> list[InputLag]:
    ends = cluster.ranges([lag.source for lag in lags], stable=False)
    return [replace(lag, log=ends[lag.source]) for lag in lags]
