"""A connection to the broker of the whole run, for the tests that talk to it directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from stateflow.log.kafka import KafkaCluster, connect
from stateflow.testing.broker import TestBroker


@pytest.fixture(scope="module")
def cluster(broker: TestBroker) -> Iterator[KafkaCluster]:
    """One for each module of tests."""
    with closing(connect(broker.bootstrap)) as made:
        yield made
