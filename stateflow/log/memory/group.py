"""The group coordinator of the memory log: members, their partitions, cooperative hand-over, expiry.

A partition that changes hands is revoked from its owner in the owner's own poll, and only then offered to its
new owner, in that one's poll. Which member gets what is decided by a balanced, sticky assignment over sorted
names, so the same calls give the same history every time. The cluster's lock is held around every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stateflow.clock import Clock
from stateflow.errors import MembershipLost
from stateflow.log.base import Committed
from stateflow.record import TopicPartition


class MemoryMembership(NamedTuple):
    """Proof of membership: which member of which generation of the group."""

    group: str
    member_id: str
    generation: int
    instance: str | None = None
    """The name of a static member."""


@dataclass(slots=True, eq=False)
class Member:
    """One member as the coordinator knows it."""

    member_id: str
    instance: str | None
    topics: frozenset[str]
    polled_ms: int
    silent_since_ms: int | None = None
    target: set[TopicPartition] = field(default_factory=set)
    owned: set[TopicPartition] = field(default_factory=set)


class GroupState:
    """One consumer group: its members and its committed offsets."""

    def __init__(self, name: str, clock: Clock, session_timeout_ms: int, max_poll_interval_ms: int) -> None:
        self.name = name
        self.offsets: dict[TopicPartition, Committed] = {}
        self.members: dict[str, Member] = {}
        self.generation = 0
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._max_poll_interval_ms = max_poll_interval_ms
        self._joined_total = 0
        self._balanced_for: object = None

    def join(self, topics: frozenset[str], instance: str | None) -> Member:
        """A new member, or the next life of a static one, which takes over its predecessor's partitions."""
        self._joined_total += 1
        member = Member(
            f"{instance or 'member'}-{self._joined_total:06d}", instance, topics, self._clock.now_ms()
        )
        before = next((m for m in self.members.values() if instance and m.instance == instance), None)
        if before is not None:
            member.target, member.owned = before.target, set()
            del self.members[before.member_id]
            before.owned = set()
        self.members[member.member_id] = member
        if before is None or before.topics != topics:
            self._balanced_for = None
        return member

    def leave(self, member: Member) -> None:
        """Take a member out; its partitions are free at once."""
        if self.members.pop(member.member_id, None) is not None:
            member.owned = set()
            self._balanced_for = None

    def fall_silent(self, member: Member) -> None:
        """The member's heartbeats stop: it is taken out when its session ends."""
        member.silent_since_ms = self._clock.now_ms()

    def speak_again(self, member: Member) -> None:
        """The member's heartbeats resume before its session has ended; otherwise nobody listens any more."""
        member.silent_since_ms = None

    def is_member(self, member: Member) -> bool:
        """False once it was taken out or replaced."""
        return member.member_id in self.members

    def replaced(self, member: Member) -> bool:
        """True when a newer life of the same static member exists."""
        others = self.members.values()
        return member.instance is not None and any(
            other.instance == member.instance and other is not member for other in others
        )

    def check(self, membership: MemoryMembership) -> None:
        """Raise ``MembershipLost`` unless this proof is of a current member in the current generation."""
        is_member = membership.member_id in self.members
        if not is_member or membership.generation != self.generation:
            names = {member.instance for member in self.members.values()}
            is_name_taken = membership.instance is not None and membership.instance in names
            code = "FENCED_INSTANCE_ID" if is_name_taken else "UNKNOWN_MEMBER_ID"
            raise MembershipLost(
                f"Member {membership.member_id!r} of group {self.name!r} was replaced, timed out, or missed a"
                " rebalance.",
                action="drop what was not committed; the partitions' present owner reads it again.",
                group=self.name,
                code="ILLEGAL_GENERATION" if is_member else code,
            )

    def expire(self, partition_counts: Mapping[str, int]) -> None:
        """Take out members whose session or poll interval has run out, and balance if anything changed."""
        now_ms = self._clock.now_ms()
        for member in list(self.members.values()):
            silent_ms = 0 if member.silent_since_ms is None else now_ms - member.silent_since_ms
            stalled_ms = now_ms - member.polled_ms
            if silent_ms >= self._session_timeout_ms or (
                member.silent_since_ms is None and stalled_ms >= self._max_poll_interval_ms
            ):
                self.leave(member)
        wanted = {topic for member in self.members.values() for topic in member.topics}
        counts = {topic: partition_counts[topic] for topic in sorted(wanted) if topic in partition_counts}
        if self._balanced_for != counts:
            self._balanced_for = counts
            self._balance(counts)

    def to_revoke(self, member: Member) -> list[TopicPartition]:
        """What the member has and shall give up."""
        return sorted(member.owned - member.target)

    def to_assign(self, member: Member) -> list[TopicPartition]:
        """What the member shall have, has not, and nobody else still has."""
        held = {p for other in self.members.values() if other is not member for p in other.owned}
        return sorted(member.target - member.owned - held)

    def _balance(self, counts: Mapping[str, int]) -> None:
        """Sticky and even: keep what each had up to its fair share, then give the rest to the poorest."""
        self.generation += 1
        before = {member.member_id: member.target | member.owned for member in self.members.values()}
        for member in self.members.values():
            member.target = set()
        for topic, count in counts.items():
            takers = sorted(
                (m for m in self.members.values() if topic in m.topics), key=lambda m: m.member_id
            )
            partitions = [TopicPartition(topic, p) for p in range(count)]
            left = _keep_fair_share(takers, partitions, before)
            for partition in left:
                min(takers, key=lambda m: (_count(m, topic), len(m.target), m.member_id)).target.add(
                    partition
                )


def _count(member: Member, topic: str) -> int:
    return sum(1 for partition in member.target if partition.topic == topic)


def _keep_fair_share(
    takers: list[Member], partitions: list[TopicPartition], before: Mapping[str, set[TopicPartition]]
) -> list[TopicPartition]:
    """Leave each taker what it had, up to its share; return the partitions that remain to be given out."""
    base, extra = divmod(len(partitions), len(takers))
    given: set[TopicPartition] = set()
    for member in sorted(takers, key=lambda m: (-len(before[m.member_id] & set(partitions)), m.member_id)):
        had = [p for p in partitions if p in before[member.member_id] and p not in given]
        share = base
        if extra and len(had) > base:
            share, extra = base + 1, extra - 1
        member.target.update(had[:share])
        given.update(had[:share])
    return [p for p in partitions if p not in given]
