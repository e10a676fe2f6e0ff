"""Input in flight: what was sent between two stages before a barrier, and not yet processed at the barrier point.

A task's barrier point is an offset of its repartition topic. Behind it stand records of both kinds: those that the
stage before sent before its own points, which belong to the savepoint, and those that it sent afterwards, which carry
the barrier's id. The ends are fixed when every task has committed its point: what is appended later is behind the
barrier without exception, whether or not it carries the id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import repartition_topic
from stateflow.changelog.barrier_id import barrier_id_in, without_barrier_id
from stateflow.checkpoint.queues import write_records
from stateflow.checkpoint.savepoints import SavedQueue, SavedTask, SavepointObjects
from stateflow.errors import OffsetsPending
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.record import OffsetRange, Record, TopicPartition

_STABLE_SECONDS_MAX = 90.0
"""Longer than a transaction may last."""
_PAUSE_SECONDS = 0.05


def collect_queues(
    cluster: Cluster,
    catalog: Catalog,
    barrier_id: int | None,
    saved: SavepointObjects,
    tasks: Sequence[SavedTask],
    pause: Callable[[float], None],
) -> Iterator[SavedQueue]:
    """Store the records in flight of every repartition topic's partition.

    Every task must have committed its point of this barrier, or, when it is None, stand still at its last commit: then
    all that was not processed is in flight, whatever ids it carries.

    Waits for transactions that are open over these partitions now; raises ``OffsetsPending`` when one does not end.
    """
    steps = {step.name: stage.name for stage in catalog.stages.values() for step in stage.rekeys}
    points = {at: offset_next for task in tasks for at, offset_next in task.position().offsets.items()}
    sources = {
        (step, partition): TopicPartition(
            repartition_topic(catalog.app.app, step, catalog.active.generation), partition
        )
        for step, stage in steps.items()
        for partition in range(catalog.partitions(stage))
    }
    ends = cluster.ranges(sources.values(), stable=False)
    _await_stable(cluster, ends, pause)
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        for (step, partition), source in sources.items():
            log = ends[source]
            after = OffsetRange(points.get(source, log.offset_first), log.offset_next)
            file = Path(scratch) / f"{step}-{partition}"
            records, size_bytes, sha256 = write_records(
                file, _before_barrier(cluster, source, after, barrier_id)
            )
            saved.put_queue(step, partition, file)
            file.unlink()
            reach("savepoint.after_queue")
            yield SavedQueue(
                step=step, partition=partition, records=records, size_bytes=size_bytes, sha256=sha256
            )


def _await_stable(
    cluster: Cluster, ends: Mapping[TopicPartition, OffsetRange], pause: Callable[[float], None]
) -> None:
    """Return when everything before these ends is committed or aborted; what is appended since does not matter."""
    deadline = time.monotonic() + _STABLE_SECONDS_MAX
    while True:
        stable = cluster.ranges(ends)
        open_ = [source for source, log in ends.items() if stable[source].offset_next < log.offset_next]
        if not open_:
            return
        if time.monotonic() > deadline:
            raise OffsetsPending(
                f"a transaction over {open_[0]} has been open for more than {_STABLE_SECONDS_MAX:.0f} s.",
                action="see whether a worker hangs; make the savepoint again.",
                partitions=[str(source) for source in open_],
            )
        pause(_PAUSE_SECONDS)


def _before_barrier(
    cluster: Cluster, source: TopicPartition, offsets: OffsetRange, barrier_id: int | None
) -> Iterator[Record]:
    """Records that tasks sent before their barrier points, without watermarks: tasks announce anew when they start."""
    for batch in read_range(cluster, source, offsets):
        for record in batch.records():
            if record.key is not None and (barrier_id is None or barrier_id_in(record.headers) != barrier_id):
                yield record._replace(headers=without_barrier_id(record.headers))
