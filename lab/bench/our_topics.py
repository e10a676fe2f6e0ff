"""Our side where records are only read, or only written: what everything else stands on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

from stateflow.lab.bench.result import Ran
from stateflow.lab.bench.running import ran_here
from stateflow.lab.bench.workload import Workload
from stateflow.lab.costs.running import Stopwatch
from stateflow.log.base import Cluster, Writer
from stateflow.partitioner import partitions_of
from stateflow.record import RecordBatch, TopicPartition

_SLICE_RECORDS = 10_000


def read(load: Workload, cluster: Cluster) -> Ran:
    """Every record of the input in one reader, twice: the first time warms up."""
    watch, seen, size_bytes = Stopwatch(), 0, 0
    for _ in range(2):
        watch, seen, size_bytes = Stopwatch(), 0, 0
        for batch in batches_of(load.topic, load.partitions, cluster):
            seen += len(batch)
            size_bytes += sum(map(len, batch.keys)) + sum(map(len, batch.values))
        took = watch.took()
    return ran_here(seen, took, f"{seen}:{size_bytes:x}")


def write(load: Workload, cluster: Cluster, topic: str) -> Ran:
    """The input, read into memory before, to ``topic`` by the hash of its keys.

    Exactly-once ends a transaction each ``commit_seconds``; whoever did it, the study reads afterwards what is there.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for batch in batches_of(load.topic, load.partitions, cluster):
        keys += batch.keys
        values += batch.values
    with closing(cluster.writer(topic if load.guarantee == "exactly-once" else None)) as writer:
        _send(writer, load, topic, keys[: load.warm_records], values[: load.warm_records])
        watch = Stopwatch()
        _send(writer, load, topic, keys[load.warm_records :], values[load.warm_records :])
        took = watch.took()
    return ran_here(load.timed_records, took, "")


def _send(
    writer: Writer, load: Workload, topic: str, keys: list[bytes | None], values: list[bytes | None]
) -> None:
    writer.begin()
    begun_seconds = time.monotonic()
    for first in range(0, len(keys), _SLICE_RECORDS):
        some = keys[first : first + _SLICE_RECORDS]
        places = partitions_of([key or b"" for key in some], load.partitions)
        writer.send_many(topic, some, values[first : first + _SLICE_RECORDS], partitions=places)
        if time.monotonic() - begun_seconds > load.commit_seconds:
            writer.commit()
            writer.begin()
            begun_seconds = time.monotonic()
    writer.commit()


def batches_of(topic: str, partitions: int, cluster: Cluster) -> Iterator[RecordBatch]:
    """All of a topic as it is now, committed records only."""
    logs = cluster.ranges([TopicPartition(topic, number) for number in range(partitions)])
    with closing(cluster.reader()) as reader:
        reader.assign({partition: log.offset_first for partition, log in logs.items()})
        while any(reader.position(partition) < log.offset_next for partition, log in logs.items()):
            yield from reader.read(_SLICE_RECORDS, 0.1)
