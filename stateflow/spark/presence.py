"""Makes a running query visible on Kafka, where workers and repartitions look before they start.

Spark's tasks join no consumer group, so the driver joins one for them: ``<app>-spark``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stateflow.catalog.names import control_topic
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import Cluster, GroupConsumer
from stateflow.record import TopicPartition
from stateflow.scale.generation import presence_group

_POLL_SECONDS = 0.5
_JOIN_SECONDS_MAX = 60.0


class _Bystander:
    """A group listener that wants nothing but to have joined."""

    def __init__(self) -> None:
        self.joined = threading.Event()

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:  # noqa: ARG002 - a listener is told
        """Nothing to open."""
        self.joined.set()

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing to close."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing to let go."""


@contextmanager
def presence(cluster: Cluster, app: str) -> Iterator[None]:
    """A member of ``<app>-spark`` for the time of a ``with`` block, kept alive by a thread.

    The control topic must exist. Raises ``BrokerUnreachable`` when the group cannot be joined in time.
    """
    listener = _Bystander()
    member = cluster.group_consumer(presence_group(app), [control_topic(app)], listener)
    try:
        _join(member, listener, app)
    except BaseException:
        member.close()
        raise
    ended = threading.Event()
    thread = threading.Thread(target=_keep_alive, args=(member, ended), name="spark-presence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        member.close()


def _join(member: GroupConsumer, listener: _Bystander, app: str) -> None:
    deadline = time.monotonic() + _JOIN_SECONDS_MAX
    while not listener.joined.is_set():
        if time.monotonic() > deadline:
            raise BrokerUnreachable(
                f"the group {presence_group(app)!r} could not be joined within {_JOIN_SECONDS_MAX:.0f} s.",
                action="check that the brokers are up, and that no other driver of this application is"
                " running.",
            )
        member.poll(1, _POLL_SECONDS)


def _keep_alive(member: GroupConsumer, ended: threading.Event) -> None:
    while not ended.is_set():
        member.poll(1, _POLL_SECONDS)
