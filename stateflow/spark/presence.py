"""Makes a running driver visible on Kafka: the group ``<app>-spark``, which the driver alone joins.

Workers and repartitions look there before they start. And the workers that Spark tasks host look there while they run:
once the driver that started them is no member any more, it has asked them to stop, or it is dead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from stateflow.catalog.names import control_topic, presence_group
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.base import Cluster, GroupConsumer
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_WATCH_SECONDS = 1.0
_MISSED_MAX = 2
"""Looks in a row without the driver: the group may just be moving to another coordinator."""
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
def presence(cluster: Cluster, app: str) -> Iterator[Presence]:
    """A member of ``<app>-spark`` for the time of a ``with`` block, kept alive by a thread.

    It may leave before the end of the block, to stop the workers that watch it.
    The control topic must exist. Raises ``BrokerUnreachable`` when the group cannot be joined in time.
    """
    listener = _Bystander()
    member = cluster.group_consumer(presence_group(app), [control_topic(app)], listener)
    try:
        _join(member, listener, app)
    except BaseException:
        member.close()
        raise
    present = Presence(member)
    try:
        yield present
    finally:
        present.leave()


class Presence:
    """The driver's membership."""

    def __init__(self, member: GroupConsumer) -> None:
        self.member_id = member.member_id
        """What the group calls the driver; another after it was lost and came back."""
        self._member = member
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._keep_alive, name="spark-presence", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Be seen no more; once and for all."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            self._member.close()

    def check(self) -> None:
        """Raise what has ended the membership for good, if anything has: a run that cannot be seen must not go on."""
        if self._failure is not None:
            raise self._failure

    def _keep_alive(self) -> None:
        try:
            while not self._ended.is_set():
                self._poll()
        except BaseException as error:  # noqa: BLE001 - kept for `check`, never dropped
            self._failure = error

    def _poll(self) -> None:
        """Serve the group. An outage, and a lost membership, are waited for: the client joins again."""
        try:
            self._member.poll(1, _POLL_SECONDS)
        except StateflowError as error:
            if not error.is_retriable:
                raise
            _LOG.warning("Waiting to be seen by other drivers and workers again: %s", error)
            self._ended.wait(_POLL_SECONDS)  # what fails at once must not keep a core busy
        # Asked here alone: while another thread polls, the client may never answer.
        self.member_id = self._member.member_id


@contextmanager
def stopped_with_driver(
    cluster: Cluster, app: str, member_id: str, stop: Callable[[], None]
) -> Iterator[None]:
    """Inside, ``stop`` is called soon after the driver of that member id has left ``<app>-spark``, or was lost from it.

    What cannot be seen while brokers do not answer is looked at again: workers outlive an outage.
    """
    ended = threading.Event()

    def watch() -> None:
        missed = 0
        while not ended.wait(_WATCH_SECONDS):
            try:
                is_there = member_id in cluster.group_members(presence_group(app))
            except StateflowError as error:
                _LOG.info("Whether the driver still runs cannot be seen: %s", error.message)
                continue
            missed = 0 if is_there else missed + 1
            if missed == _MISSED_MAX:
                _LOG.info("The driver has left: committing and closing.")
                stop()

    thread = threading.Thread(target=watch, name="driver-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


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
