"""A writer whose client tells no statistics cannot know how often a commit that took long was sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from stateflow.errors import TransactionAborted
from stateflow.lab.network.faults import Action, Fault
from stateflow.lab.network.proxy import KafkaProxy
from stateflow.log.base import TopicSpec
from stateflow.log.kafka.cluster import KafkaCluster
from stateflow.log.kafka.settings import KafkaOptions
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def proxy(broker: TestBroker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.bootstrap) as running:
        yield running


def test_it_goes_on_at_once_while_nothing_is_in_doubt_and_is_given_up_then(
    broker: TestBroker, proxy: KafkaProxy
) -> None:
    topic = f"late-{uuid.uuid4().hex[:8]}"
    KafkaCluster(broker.bootstrap).create([TopicSpec(topic, 1)])
    cluster = KafkaCluster(proxy.bootstrap, options=KafkaOptions(statistics_ms=0))
    writer = cluster.writer(topic)
    for _ in range(3):  # answered at once: nothing is in doubt, and nothing waits
        writer.begin()
        writer.send(topic, b"k", b"v", partition=0)
        writer.commit()
    writer.begin()
    writer.send(topic, b"k", b"v", partition=0)
    caught = proxy.arm(Fault(Action.LOSE_ANSWER, transactional_id=topic))
    writer.commit()
    assert caught.happened
    writer.begin()
    with pytest.raises(TransactionAborted, match="before anything of it was sent"):
        writer.flush()
    writer.close()
