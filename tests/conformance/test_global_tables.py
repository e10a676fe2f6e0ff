"""A topic that is read whole and then followed: the newest value of each key, over every kind of cluster."""

from __future__ import annotations

from stateflow.clock import SystemClock
from stateflow.runtime.task.global_tables import GlobalTables
from tests.conformance.log_world import World


def test_a_topic_is_read_whole_and_followed(world: World) -> None:
    topic = world.topic(partitions=2)
    world.produce(topic, *((b"k%d" % number, b"old") for number in range(50)), (b"k0", b"new"), (b"k1", None))
    tables = GlobalTables(world.cluster, world.clock or SystemClock())
    entries = tables.lease(topic, 1 << 20, lambda: False)
    assert (len(entries), entries.get(b"k0"), entries.get(b"k1")) == (49, b"new", None)
    world.produce(topic, (b"k2", None), (b"other", b"first"), partition=1)
    world.until(lambda: entries.get(b"other") == b"first" and entries.get(b"k2") is None, entries.catch_up)
    world.produce(topic, (b"k0", b"newest"))
    world.until(lambda: entries.get(b"k0") == b"newest", entries.catch_up)
    assert len(entries) == 49
    tables.release(topic)
