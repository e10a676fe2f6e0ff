"""A member of a consumer group on the memory log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from stateflow.errors import MembershipLost
from stateflow.log.base import Committed, GroupListener, GroupMetadata
from stateflow.log.memory.broker import MemoryBroker
from stateflow.log.memory.group import MemoryMembership
from stateflow.log.memory.reader import MemoryReader
from stateflow.record import RecordBatch, TopicPartition


class MemoryGroupConsumer:
    """Implements :class:`stateflow.log.base.GroupConsumer`."""

    def __init__(
        self,
        broker: MemoryBroker,
        group: str,
        topics: Sequence[str],
        listener: GroupListener,
        instance: str | None,
        *,
        independent: bool = False,
    ) -> None:
        self._broker = broker
        self._topics = frozenset(topics)
        self._listener = listener
        self._instance = instance
        self._independent = independent
        self._reader = MemoryReader(broker)
        self._held: set[TopicPartition] = set()
        self._is_back = False
        """Joined again, as another member, before it was told that it had lost its place."""
        self._closed = False
        with broker.lock:
            for topic in topics:
                broker.topic(topic)
            self._group = broker.group(group)
            self._member = self._group.join(self._topics, instance)
            broker.expire(changed=True)

    def poll(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Serve the group, then read. Raises ``MembershipLost`` when this member was started elsewhere."""
        assert not self._closed, "this member has left the group"
        with self._broker.lock:
            self._broker.expire()
            if self._group.replaced(self._member):
                raise MembershipLost(
                    f"Static member {self._instance!r} of group {self._group.name!r} was started elsewhere.",
                    action="stop this instance, or give each worker a member name of its own.",
                    group=self._group.name,
                    member=self._instance,
                )
            is_member = self._group.is_member(self._member) and not self._is_back
            lost = [] if is_member else sorted(self._held)
        if not is_member:
            self._rejoin(lost)
        with self._broker.lock:
            self._member.polled_ms = self._broker.clock.now_ms()
        self._hand_over()
        return self._reader.read(max_records, timeout_seconds)

    def _rejoin(self, lost: list[TopicPartition]) -> None:
        """The group went on without this member: tell so, and join again as a new one."""
        self._held.clear()
        self._drop(lost)
        if lost:
            self._listener.on_lost(lost)
        with self._broker.lock:
            self._is_back = False
            if not self._group.is_member(self._member):
                self._join_again()

    def _join_again(self) -> None:
        self._member = self._group.join(self._topics, self._instance)
        self._broker.expire(changed=True)

    def _hand_over(self) -> None:
        """Give up what is due, then take what is free. The listener runs without the cluster's lock."""
        with self._broker.lock:
            revoked = self._group.to_revoke(self._member)
        if revoked:
            self._listener.on_revoked(revoked)
            self._drop(revoked)
        with self._broker.lock:
            self._member.owned.difference_update(revoked)
            self._held.difference_update(revoked)
            if self._is_back or not self._group.is_member(
                self._member
            ):  # callbacks took longer than the session
                return
            assigned = self._group.to_assign(self._member)
            self._member.owned.update(assigned)
            self._held.update(assigned)
        if assigned:
            self._listener.on_assigned(assigned)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in () if self._independent else partitions:
            self._reader.drop(partition)

    def start(self, offsets: Mapping[TopicPartition, int], *, on_demand: bool = False) -> None:
        """Begin reading at these offsets."""
        self._reader.add(offsets, on_demand=on_demand)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading; unknown partitions are ignored."""
        for partition in partitions:
            self._reader.drop(partition)

    gives_on_demand = True

    def let_come(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the records of partitions on demand come by ``poll``."""
        self._reader.let_come(partitions)

    def pull(self, partition: TopicPartition, max_records: int) -> list[RecordBatch]:
        """What there is of a partition on demand."""
        return self._reader.pull(partition, max_records)

    def is_at_end(self, partition: TopicPartition) -> bool:
        """True when nothing is left to read of a started partition."""
        return self._reader.is_at_end(partition)

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be read of a started partition."""
        return self._reader.position(partition)

    def passed(self) -> set[TopicPartition]:
        """Partitions that were read further without a record since this was asked last."""
        passed, self._reader.passed = self._reader.passed, set()
        return passed

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit input offsets. Raises ``MembershipLost`` when the group went on without this member."""
        with self._broker.lock:
            self._broker.expire()
            self._group.check(self.metadata())
            self._group.offsets.update(offsets)

    def metadata(self) -> MemoryMembership:
        """Current proof of membership; a rebalance makes it stale, so ask again for every commit."""
        with self._broker.lock:
            return MemoryMembership(
                self._group.name, self._member.member_id, self._group.generation, self._instance
            )

    def renewed(self, proof: GroupMetadata) -> GroupMetadata:
        """The same member's proof as of now, or the one given."""
        now = self._client_proof()
        return now if cast(MemoryMembership, proof).member_id == now.member_id else proof

    def _client_proof(self) -> MemoryMembership:
        """What the client's own threads know: they join again as another member before anybody polls, as Kafka's do."""
        with self._broker.lock:
            self._broker.expire()
            is_silent = self._closed or self._member.silent_since_ms is not None
            if not (is_silent or self._group.is_member(self._member) or self._group.replaced(self._member)):
                self._is_back = True
                self._join_again()
            return self.metadata()

    @property
    def member_id(self) -> str:
        """What the group calls this member."""
        return self._member.member_id

    def verify_membership(self) -> None:
        """Nothing to do: a member here hears of its loss with the next ``poll``."""

    def close(self) -> None:
        """Give everything up and leave; a static member stays known until its session ends."""
        if self._closed:
            return
        with self._broker.lock:
            self._broker.expire()
            held = sorted(self._held)
            is_member = self._group.is_member(self._member) and not self._is_back
        if held:
            (self._listener.on_revoked if is_member else self._listener.on_lost)(held)
        self._end()
        with self._broker.lock:
            if self._instance is None:
                self._group.leave(self._member)
                self._broker.expire(changed=True)

    def kill(self) -> None:
        """Stop as if by SIGKILL: no callback, no goodbye; the group notices when the session times out."""
        self._end()

    def freeze(self) -> None:
        """Stop as if by SIGSTOP: the member's heartbeats cease."""
        with self._broker.lock:
            self._group.fall_silent(self._member)

    def thaw(self) -> None:
        """Go on as after SIGCONT: the heartbeats resume, if the group still knows this member."""
        with self._broker.lock:
            self._broker.expire()
            self._group.speak_again(self._member)

    def _end(self) -> None:
        self._held.clear()
        self._reader.close()
        if not self._closed:
            self._closed = True
            with self._broker.lock:
                self._group.fall_silent(self._member)
