"""`TopicWriter` over a real broker with static DataFrames; streams of rows are in `test_state_as_table`."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from stateflow.errors import ConfigError
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.log.reading import read_topic
from stateflow.spark.connection import Connection
from stateflow.spark.to_topic import TopicWriter
from stateflow.testing.broker import TestBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def test_rows_without_a_key_are_refused_whole_and_times_are_kept_to_the_ms(
    broker: TestBroker, session: SparkSession
) -> None:
    cluster = KafkaCluster(broker.bootstrap)
    topic = f"rows-{uuid.uuid4().hex[:8]}"
    cluster.create([TopicSpec(topic, 2)])
    writer = TopicWriter(Connection(broker.bootstrap), topic, topic)
    frame = session.range(100).selectExpr("CAST(nullif(id, 60) AS STRING) AS key", "'v' AS value")
    with pytest.raises(ConfigError, match="a row has no key"):
        writer(frame, 0)
    times = [1_700_000_000_000 + number for number in range(100)]
    timed = session.range(100).selectExpr(
        "CAST(id AS STRING) AS key", "'v' AS value", f"timestamp_millis({times[0]} + id) AS timestamp"
    )
    assert writer(timed, 0) == 100, "nothing was there of the rows that were refused"
    found = [record.timestamp_ms for batch in read_topic(cluster, topic) for record in batch.records()]
    assert sorted(found) == times
    cluster.close()
