"""Sources that get partitions while an application runs on Spark: added by a task itself, amid its first records."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import cloudpickle

from stateflow.lab.applications.words import COUNTS, Count, Split, Words, topology
from stateflow.log.base import Cluster
from stateflow.log.kafka import KafkaCluster
from stateflow.operators.steps.context import StageContext
from stateflow.operators.topology.topology import Input, Stage, Topology
from stateflow.record import RecordBatch
from tests.waiting import wait_until

# Executors cannot import a test module.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
cloudpickle.register_pickle_by_value(sys.modules[wait_until.__module__])  # type: ignore[no-untyped-call]

PARTITIONS = 4
"""What sources grow to: there are two at first."""
LINES = 50


def add_partitions(bootstrap: str, cluster: Cluster, app: str) -> None:
    """Have the source grow, and wait until a broker says so."""
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined] # not to be pickled

    topic = f"{app}-in"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_partitions([NewPartitions(topic, PARTITIONS)]).values():
        done.result()
    wait_until(lambda: cluster.describe([topic])[topic].partitions == PARTITIONS, "more partitions")


def feed_last_partition(cluster: Cluster, app: str) -> None:
    """Write lines of two words, ``here`` and ``there``, to the last of the partitions."""
    writer = cluster.writer()
    writer.begin()
    for number in range(LINES):
        writer.send(f"{app}-in", b"here", b"here there", partition=PARTITIONS - 1, timestamp_ms=number)
    writer.commit()
    writer.close()


def expect_last_partition(words: Words) -> None:
    """Count what ``feed_last_partition`` writes."""
    words.expected.update({b"here": LINES, b"there": LINES})


def grow_once(folder: str, bootstrap: str, app: str) -> None:
    """Add partitions with records, by whoever comes first."""
    try:
        Path(folder, "grown").touch(exist_ok=False)
    except FileExistsError:
        return
    cluster = KafkaCluster(bootstrap)
    add_partitions(bootstrap, cluster, app)
    feed_last_partition(cluster, app)
    cluster.close()


class SplitAndGrow(Split):
    """Keeps no state; its source grows with the first records that it reads."""

    def __init__(self, context: StageContext, *place: str) -> None:
        super().__init__(context)
        self._place = place

    def process(self, batch: RecordBatch) -> None:
        super().process(batch)
        grow_once(*self._place)


class CountAndGrow(Count):
    """Keeps state by partitions of its source, which grows with the first records that it reads."""

    def __init__(self, context: StageContext, output: str, *place: str) -> None:
        super().__init__(context, output)
        self._place = place

    def process(self, batch: RecordBatch) -> None:
        super().process(batch)
        grow_once(*self._place)


def growing(app: str, folder: str, bootstrap: str) -> Topology:
    """The counted words, behind a source that grows."""
    lines, counts = topology(app).stages

    def build(context: StageContext) -> SplitAndGrow:
        return SplitAndGrow(context, folder, bootstrap, app)

    return Topology(app, (Stage(lines.name, lines.inputs, (), (), lines.rekeys, build), counts))


def growing_under_state(app: str, folder: str, bootstrap: str) -> Topology:
    """Keys counted where they come in: such state depends on how many partitions there are."""

    def build(context: StageContext) -> CountAndGrow:
        return CountAndGrow(context, f"{app}-out", folder, bootstrap, app)

    return Topology(app, (Stage("by-word", (Input(f"{app}-in"),), (COUNTS,), (f"{app}-out",), (), build),))


def feed_keys(words: Words) -> None:
    """Input for ``growing_under_state``."""
    writer = words.cluster.writer()
    writer.begin()
    writer.send_many(f"{words.app}-in", [b"a"] * 10, [b"v"] * 10, partitions=0, timestamps_ms=1)
    writer.commit()
    writer.close()
