"""What the tests on other systems' topics share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from stateflow.log.kafka import KafkaCluster, connect
from stateflow.testing.broker import TestBroker


@pytest.fixture
def cluster(broker: TestBroker) -> Iterator[KafkaCluster]:
    with closing(connect(broker.bootstrap)) as made:
        yield made
