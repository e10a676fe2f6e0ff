"""Offsets on a Kafka cluster: where logs begin and end, trimming, what groups have committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConsumerGroupDescription,
    MemberDescription,
    OffsetSpec,
)

from stateflow.errors import BrokerUnreachable, OffsetOutOfRange, OffsetsPending, StillRunning
from stateflow.log.base import AssignedMember, Committed
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.failures import error_of, is_passing
from stateflow.log.kafka.fetching import places_of
from stateflow.log.kafka.taken_names import NameHolder
from stateflow.log.kafka.topics import topics_found
from stateflow.record import OffsetRange, TopicPartition

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_TRIM_SECONDS_MAX = 5.0
"""A worker that ends waits for a trim, and it can be done another time."""
_ASK_SECONDS_MAX = 5.0
"""A question that meets a broker's end may be left without an answer while the next one is answered at once."""
_LOOK_SECONDS = 2.0
"""For a question that tells a coordinator that waits for a transaction from one that does not answer."""


def _level(*, stable: bool) -> IsolationLevel:
    return IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED


class Offsets:
    """The offset half of :class:`stateflow.log.kafka.KafkaCluster`."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        """Log start and last stable offset, or end of the log, of each partition."""
        wanted = list(partitions)
        if not wanted:
            return {}
        first = self._list(wanted, _EARLIEST, _level(stable=stable))
        after = self.ends(wanted, stable=stable)
        return {p: OffsetRange(first[p], max(first[p], after[p])) for p in wanted}

    def ends(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        """Last stable offset, or end of the log, of each partition."""
        wanted = list(partitions)
        return self._list(wanted, _LATEST, _level(stable=stable)) if wanted else {}

    def _list(
        self, partitions: list[TopicPartition], spec: OffsetSpec, level: IsolationLevel
    ) -> dict[TopicPartition, int]:
        def request(left_seconds: float) -> dict[TopicPartition, int]:
            futures = self._admin.client.list_offsets(
                {ClientPartition(*partition): spec for partition in partitions},
                isolation_level=level,
                request_timeout=left_seconds,
            )
            try:
                return answered(
                    {TopicPartition(p.topic, p.partition): f.result().offset for p, f in futures.items()}
                )
            except KafkaException as raised:
                self._raise_leaderless(raised, partitions, left_seconds)
                raise

        return self._admin.ask(f"asking for the offsets of {_names(partitions)}", request)

    def _raise_leaderless(
        self, raised: KafkaException, partitions: Iterable[TopicPartition], timeout_seconds: float
    ) -> None:
        """Of partitions that are there without a leader, as after an outage, librdkafka says what it says of none."""
        if error_of(raised).code() != KafkaError._NOENT:
            return
        wanted = set(partitions)
        found = topics_found(self._admin.client, {each.topic for each in wanted}, timeout_seconds)
        if wanted <= {
            TopicPartition(name, place.id) for name, topic in found.items() for place in topic.partitions
        }:
            raise KafkaException(
                KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "there is no leader at the moment")
            ) from raised

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop everything before these offsets. Raises ``BrokerRefused`` on a compact-only topic."""

        def request(left_seconds: float) -> None:
            futures = self._admin.client.delete_records(
                [ClientPartition(p.topic, p.partition, offset) for p, offset in offsets.items()],
                request_timeout=left_seconds,
            )
            for partition, future in futures.items():
                try:
                    future.result()
                except KafkaException as raised:
                    self._raise_leaderless(raised, offsets, left_seconds)
                    if error_of(raised).code() != KafkaError.OFFSET_OUT_OF_RANGE:
                        raise
                    raise self.out_of_range(
                        TopicPartition(partition.topic, partition.partition), partition.offset
                    ) from raised

        if offsets:
            self._admin.ask(f"trimming {_names(offsets)}", request, _TRIM_SECONDS_MAX)

    def out_of_range(self, partition: TopicPartition, offset: int) -> OffsetOutOfRange:
        """The error for an offset outside a log, with the log's ends as they are now; −1 where nobody tells them."""
        try:
            low, high = self.ranges([partition])[partition]
        except BrokerUnreachable:  # what is known already is not to be lost with what is not
            low = high = -1
        return OffsetOutOfRange(
            f"Offset {offset} is not in the log of {partition}, which holds {low} to {high}.",
            action="restore from the start of the log, or from an image within it.",
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            low=low,
            high=high,
        )

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        stable: bool,
        pending_seconds: float | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets; see the protocol. A coordinator that does not answer is waited for as for any request."""
        wanted = [ClientPartition(*partition) for partition in partitions]
        if not wanted:
            return {}
        coordinators, clock = self._admin.coordinators, self._admin.clock
        ask_seconds_max = min(_ASK_SECONDS_MAX, pending_seconds or _ASK_SECONDS_MAX)
        patient_until = (
            float("inf") if pending_seconds is None else clock.monotonic_seconds() + pending_seconds
        )

        def request(left_seconds: float) -> list[ClientPartition]:
            asked_seconds = min(left_seconds, ask_seconds_max)
            try:
                return _checked(coordinators.committed(group, wanted, asked_seconds, stable=stable))
            except KafkaException as raised:
                is_held = is_passing(error_of(raised)) and clock.monotonic_seconds() >= patient_until
                if not (stable and is_held and self._answers(group)):
                    raise
                return self._asked_anew(group, wanted, _LOOK_SECONDS)

        try:
            found = self._admin.call(f"reading the offsets of group {group!r}", request)
        except BrokerUnreachable:
            if not stable or not self._answers(group):
                raise
            found = self._asked_anew(group, wanted, _ASK_SECONDS_MAX)
        return {
            TopicPartition(p.topic, p.partition): Committed(p.offset, p.metadata or "")
            for p in found
            if p.offset >= 0
        }

    def _asked_anew(self, group: str, wanted: list[ClientPartition], seconds: float) -> list[ClientPartition]:
        """The offsets, by a client that has just had an answer. If it gets none to this question, offsets are held."""
        try:
            return _checked(self._admin.coordinators.committed(group, wanted, seconds, stable=True))
        except KafkaException as raised:
            raise _pending(group) from raised

    def _answers(self, group: str) -> bool:
        try:
            self._admin.coordinators.ask(group, _LOOK_SECONDS)
        except KafkaException:
            return False
        return True

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Set a group's offsets from outside. Raises ``StillRunning`` when it has members."""

        def request(left_seconds: float) -> None:
            self._admin.coordinators.ask(group, left_seconds)
            (future,) = self._admin.client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, client_offsets(offsets))], request_timeout=left_seconds
            ).values()
            try:
                _checked(future.result().topic_partitions)
            except KafkaException as raised:
                if error_of(raised).code() not in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP):
                    raise
                raise StillRunning(
                    f"Group {group!r} has running members; its offsets cannot be set from outside.",
                    action="stop the workers of the application, then try again.",
                    group=group,
                ) from raised

        if offsets:
            self._admin.call(f"committing offsets of group {group!r}", request)

    def group_members(self, group: str, timeout_seconds: float | None = None) -> list[str]:
        """Ids of the members of a group right now."""
        return sorted(member.member_id for member in self._members(group, timeout_seconds))

    def group_assignments(self, group: str) -> list[AssignedMember]:
        """The members of a group right now, and what is assigned to each."""
        return sorted(map(_assigned, self._members(group)), key=lambda member: member.member_id)

    def name_holder(self, group: str, name: str, timeout_seconds: float) -> NameHolder | None:
        """The static member that has this name right now, if any."""
        found = self.described(group, timeout_seconds)
        is_stable = found is not None and found.state == ConsumerGroupState.STABLE
        for member in [] if found is None else found.members:
            if member.group_instance_id == name:
                return NameHolder(member.member_id, is_stable)
        return None

    def _members(self, group: str, timeout_seconds: float | None = None) -> list[MemberDescription]:
        found = self.described(group, timeout_seconds)
        return [] if found is None else list(found.members)

    def described(self, group: str, timeout_seconds: float | None = None) -> ConsumerGroupDescription | None:
        """What its coordinator tells of a group; None if there is none of this name."""

        def request(left_seconds: float) -> ConsumerGroupDescription | None:
            self._admin.coordinators.ask(group, left_seconds)
            (future,) = self._admin.client.describe_consumer_groups(
                [group], request_timeout=left_seconds
            ).values()
            try:
                found: ConsumerGroupDescription = future.result()
            except KafkaException as raised:
                if error_of(raised).code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise
                return None
            return found

        return self._admin.call(f"describing group {group!r}", request, timeout_seconds)


def _assigned(member: MemberDescription) -> AssignedMember:
    assignment = member.assignment
    places = [] if assignment is None else assignment.topic_partitions
    partitions = frozenset(places_of(places))
    return AssignedMember(member.member_id, member.host.lstrip("/"), partitions)


def answered(offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The ends of logs as a broker told them. Raises what makes the caller ask again when it told nothing.

    An overloaded broker's silence can come out of the client library as a result without an error and an offset of
    −1001. Taken for an offset that would be the end of an empty log, and state would be thought to be none.
    """
    silent = [str(partition) for partition, offset in offsets.items() if offset < 0]
    if silent:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no offset of {', '.join(silent)} was told"))
    return offsets


def client_offsets(offsets: Mapping[TopicPartition, Committed]) -> list[ClientPartition]:
    """Committed positions as the client library takes them."""
    return [
        ClientPartition(p.topic, p.partition, committed.offset_next, committed.metadata)
        for p, committed in offsets.items()
    ]


def _checked(partitions: list[ClientPartition]) -> list[ClientPartition]:
    for partition in partitions:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return partitions


def _pending(group: str) -> OffsetsPending:
    return OffsetsPending(
        f"An open transaction holds offsets of group {group!r}.",
        action="start the writer with its transactional id first, or wait for its timeout.",
        group=group,
    )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted({str(partition) for partition in partitions}))
