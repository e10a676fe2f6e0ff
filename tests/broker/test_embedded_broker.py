"""The embedded broker: it serves, keeps or drops its data, stops in order and leaves no orphan."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker


def test_serves_metadata(broker: TestBroker) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert len(client.list_topics(timeout=10).brokers) == 1
