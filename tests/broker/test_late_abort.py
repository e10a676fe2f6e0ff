"""A writer aborts a transaction that a late EndTxn has committed already."""

from __future__ import annotations

import uuid
from contextlib import closing

import pytest

from stateflow.errors import TransactionAborted
from stateflow.lab.network.faults import Action, Fault
from stateflow.lab.network.proxy import KafkaProxy
from stateflow.log.base import TopicSpec
from stateflow.log.kafka.cluster import KafkaCluster
from stateflow.testing.broker import TestBroker

pytestmark = pytest.mark.broker

OBEYED = 0


def test_a_writer_may_abort_what_a_late_end_has_committed(
    broker: TestBroker,
) -> None:
    """Nothing is left to abort, which is no reason to end: whoever goes on finds it by the commit records."""
    with KafkaProxy(broker.bootstrap) as proxy, closing(KafkaCluster(proxy.bootstrap)) as cluster:
        abort_what_is_committed(proxy, cluster)


def abort_what_is_committed(proxy: KafkaProxy, cluster: KafkaCluster) -> None:
    topic = f"late-{uuid.uuid4().hex[:8]}"
    cluster.create([TopicSpec(topic, 1)])
    writer = cluster.writer(topic)
    writer.begin()
    writer.send(topic, b"k", b"whole", partition=0)
    repeated = proxy.arm(Fault(Action.DUPLICATE))
    writer.commit()
    writer.begin()
    writer.send(topic, b"k", b"torn", partition=0)
    writer.flush()
    assert repeated.wait().deliver() == OBEYED
    writer.abort()
    with pytest.raises(TransactionAborted):
        writer.begin()
    writer.close()
    successor = cluster.writer(topic)
    successor.begin()
    successor.send(topic, b"k", b"true", partition=0)
    successor.commit()
    successor.close()
