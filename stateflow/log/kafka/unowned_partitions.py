"""Partitions of a group that nobody owns, found and assigned again.

Under cooperative rebalance a partition changes hands in two rounds: its owner gives it up in the first, and joins
again so that the second assigns it. A static member that dies between the two, and is started anew in its session,
gets its assignment of the first round back without any rebalance (KIP-345). Nobody asks for the second round then: the
group is stable, and the partition is nobody's until something else happens. So one of the static members looks now and
then, and triggers a rebalance by joining the group for a moment as one more member.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupState, KafkaException

from stateflow.errors import StateflowError
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.fetching import places_of
from stateflow.log.kafka.leaving import leave
from stateflow.log.kafka.offsets import Offsets
from stateflow.log.kafka.settings import Settings
from stateflow.log.kafka.topics import Topics
from stateflow.record import TopicPartition

_LOG = logging.getLogger(__name__)

_JOIN_SECONDS_MAX = 20.0
_SERVE_SECONDS = 0.1
_CLOSE_SECONDS_MAX = 5.0

Sighting = tuple[frozenset[str], frozenset[TopicPartition]]
"""The members of a stable group, and the partitions that none of them owns."""


class UnownedPartitionMonitor:
    """A thread beside one static member. ``close`` ends it; it never touches the member itself."""

    def __init__(self, admin: Admin, settings: Settings, topics: Sequence[str]) -> None:
        self._admin = admin
        self._topics_admin = Topics(admin)
        self._offsets = Offsets(admin)
        self._group = str(settings["group.id"])
        self._instance = str(settings["group.instance.id"])
        self._dynamic = {name: value for name, value in settings.items() if name != "group.instance.id"}
        self._topics = sorted(topics)
        self._interval_seconds = int(settings["session.timeout.ms"]) / 1000
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"unowned-{self._group}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more.

        Waits for a look that is under way: should the process end before its answer, the client library would call
        into an interpreter that is gone. Not for longer than a broker that answers takes.
        """
        self._ended.set()
        self._thread.join(_CLOSE_SECONDS_MAX)

    def _watch(self) -> None:
        before: Sighting | None = None
        while not self._ended.wait(self._interval_seconds):
            try:
                seen = self._look()
                # Twice the same, a session apart: no rebalance is on its way, and nobody is about to join.
                if seen is not None and seen == before:
                    self._trigger_rebalance(seen[1])
                    seen = None
            except (StateflowError, KafkaException) as error:
                _LOG.info("Cannot see who owns the partitions of group %s: %s", self._group, error)
                seen = None
            before = seen

    def _look(self) -> Sighting | None:
        """What is nobody's in a stable group, when it is this member's turn to care; None otherwise."""
        group = self._offsets.described(self._group)
        members = group.members if group is not None and group.state == ConsumerGroupState.STABLE else []
        static = sorted(member.group_instance_id for member in members if member.group_instance_id)
        if not static or static[0] != self._instance:
            return None
        found = self._topics_admin.describe(self._topics)
        every = {
            TopicPartition(name, number) for name, info in found.items() for number in range(info.partitions)
        }
        owned = {place for member in members for place in places_of(member.assignment.topic_partitions)}
        ids = frozenset(str(member.member_id) for member in members)
        return (ids, frozenset(every - owned)) if every - owned else None

    def _trigger_rebalance(self, unowned: frozenset[TopicPartition]) -> None:
        """Join and leave: each is a rebalance, and the second assigns to those who stay."""
        names = ", ".join(map(str, sorted(unowned)))
        _LOG.warning("Nobody in group %s owns %s: triggering a rebalance.", self._group, names)
        assigned = threading.Event()
        passer_by = Consumer(self._dynamic, logger=client_log)
        try:
            passer_by.subscribe(
                self._topics,
                on_assign=lambda consumer, _: _take_nothing(consumer, assigned),
                on_revoke=lambda consumer, _: consumer.incremental_unassign([]),
            )
            deadline = self._admin.clock.monotonic_seconds() + _JOIN_SECONDS_MAX
            while not (assigned.is_set() or self._ended.is_set()):
                passer_by.poll(_SERVE_SECONDS)
                if self._admin.clock.monotonic_seconds() > deadline:
                    break
        finally:
            leave(passer_by, lambda: False, self._admin.clock)
            passer_by.close()


def _take_nothing(consumer: Any, assigned: threading.Event) -> None:
    """Answer an assignment without reading anything of it."""
    consumer.incremental_assign([])
    assigned.set()
