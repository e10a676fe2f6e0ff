"""A member of a group that speaks Kafka's protocol by hand: it decides when a generation is agreed on.

What the client library does at once can be left out here, so that a coordinator ends between what it has answered and
what it has written down.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from stateflow.log.kafka.wire import WireConnection
from stateflow.log.kafka.wire_types import Cursor, kafka_array, kafka_string
from stateflow.record import TopicPartition
from tests.waiting import wait_until

_JOIN_GROUP, _LEAVE_GROUP, _SYNC_GROUP = 11, 13, 14
_SESSION_MS = 120_000
"""It sends no heartbeats."""
_STRATEGY = "cooperative-sticky"
_NULL_BYTES = struct.pack(">i", -1)


class GroupLeader:
    """The first member of a group, and so its leader, which never wants a partition."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._id = ""
        self._generation = -1
        self.others: set[str] = set()
        """The other members of the generation that it joined last."""

    def join(self) -> None:
        """Begin another generation and wait until all members have joined it; ``sync`` would make it agreed on."""
        subscription = struct.pack(">h", 1) + kafka_array([kafka_string(self._topic)]) + _NULL_BYTES
        subscription += kafka_array([])  # what it owns
        protocol = kafka_string(_STRATEGY) + _sized(subscription)
        body = kafka_string(self._group) + struct.pack(">ii", _SESSION_MS, _SESSION_MS)
        body += kafka_string(self._id) + kafka_string("consumer") + kafka_array([protocol])
        answer = self._request(_JOIN_GROUP, 2, body)
        self._generation = answer.int32()
        answer.string()  # the strategy
        leader, self._id = answer.string(), answer.string()
        assert leader == self._id, "somebody else leads the group"
        self.others = set()
        for _ in range(answer.int32()):
            self.others.add(answer.string())
            answer.skip(answer.int32())
        self.others.discard(self._id)

    def join_until(self, condition: Callable[[set[str]], bool]) -> None:
        """Join again and again, without agreeing to anything, until the others are those wanted."""

        def is_joined() -> bool:
            self.join()
            return condition(self.others)

        wait_until(is_joined, lambda: f"other members than {self.others}")

    def sync(self, assignment: dict[str, Iterable[TopicPartition]]) -> None:
        """Assign partitions to members: the generation is agreed on, and the coordinator writes it down."""
        body = kafka_string(self._group) + struct.pack(">i", self._generation) + kafka_string(self._id)
        body += kafka_array(
            kafka_string(member) + _sized(_assigned(partitions)) for member, partitions in assignment.items()
        )
        self._request(_SYNC_GROUP, 1, body)

    def leave(self) -> None:
        """Be no member any more: from here on the others agree among themselves."""
        self._request(_LEAVE_GROUP, 1, kafka_string(self._group) + kafka_string(self._id))

    def _request(self, api_key: int, version: int, body: bytes) -> Cursor:
        host, port = self._bootstrap.split(":")
        connection = WireConnection(host, int(port), timeout_seconds=60.0)
        try:
            answer = Cursor(connection.request(api_key, version, body))
        finally:
            connection.close()
        answer.skip(4)  # how long the broker has throttled it
        error = answer.int16()
        assert not error, f"Kafka's error {error}"
        return answer


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _assigned(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for place in partitions:
        by_topic.setdefault(place.topic, []).append(place.partition)
    topics = kafka_array(
        kafka_string(topic) + kafka_array(struct.pack(">i", number) for number in numbers)
        for topic, numbers in by_topic.items()
    )
    return struct.pack(">h", 1) + topics + _NULL_BYTES
