"""Tables of state whose changelogs are written on, and cleaned, between their planning and their reading."""

from __future__ import annotations

import uuid

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.lab.applications.written import WrittenApp
from stateflow.log.kafka import KafkaCluster
from stateflow.log.reading import read_range
from stateflow.query.snapshot import store_snapshot
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from tests.conformance.log_world import AGGRESSIVE
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

KEYS = [f"key-{number}" for number in range(40)]


def test_rows_written_again_and_cleaned_before_they_are_read(cluster: KafkaCluster) -> None:
    app = WrittenApp(cluster, f"tables-{uuid.uuid4().hex[:8]}", RoutingTable.modulo(2))
    app.create()
    app.write_state("totals", [(key.encode(), b"first") for key in KEYS])
    app.commit_inputs({0: 9, 1: 9})
    snapshot = store_snapshot(cluster, ControlTopic(cluster, app.app).load(), "totals")
    cluster.alter_topic_config(snapshot.topic, AGGRESSIVE)

    def is_cleaned() -> bool:
        """Of what the table was planned with nothing is left. A segment is closed by what is written after its time."""
        app.write_state("totals", [(key.encode(), b"again") for key in KEYS])
        places = {TopicPartition(snapshot.topic, number): at for number, at in snapshot.ranges.items()}
        return b"first" not in {
            value
            for place, at in places.items()
            for batch in read_range(cluster, place, at)
            for value in batch.values
        }

    wait_until(is_cleaned, "the cleaner")
    found = [
        (row["key"], row["value"])
        for number in snapshot.partitions
        for batch in snapshot.batches(cluster, number)
        for row in batch.to_pylist()
    ]
    assert sorted(found) == sorted((key, "again") for key in KEYS)
