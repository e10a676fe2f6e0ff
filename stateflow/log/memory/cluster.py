"""A Kafka cluster in this process, for tests, simulation and the test driver."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from stateflow.clock import Clock, SystemClock
from stateflow.errors import BrokerRefused, OffsetOutOfRange, OffsetsPending, StillRunning
from stateflow.log.base import AssignedMember, Committed, GroupListener, TopicInfo, TopicSpec
from stateflow.log.memory.broker import MemoryBroker
from stateflow.log.memory.consumer import MemoryGroupConsumer
from stateflow.log.memory.delayed import DelayedWriter
from stateflow.log.memory.reader import MemoryReader
from stateflow.log.memory.topic import Topic, check_config
from stateflow.log.memory.transactions import MemoryTransactions
from stateflow.log.memory.writer import MemoryWriter
from stateflow.record import OffsetRange, TopicPartition


class MemoryCluster:
    """Implements :class:`stateflow.log.base.Cluster`; deterministic, without threads, with Kafka's rules.

    Nothing happens by itself: time passes when ``clock`` is moved and is noticed by the next call, members
    of a group hand over partitions in their own polls, and the cleaner runs when :meth:`compact` is called.
    Calls that would wait on a broker answer at once, or raise what the wait would have ended in.

    With ``delays_seed`` the records of its writers are on their way for a while, see :class:`DelayedWriter`.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        transaction_timeout_ms: int = 60_000,
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int = 300_000,
        linger_records: int = 0,
        delays_seed: int | None = None,
    ) -> None:
        self._broker = MemoryBroker(
            clock or SystemClock(),
            transaction_timeout_ms=transaction_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            max_poll_interval_ms=max_poll_interval_ms,
        )
        self.transactions = MemoryTransactions(
            self._broker.transactions, self._broker.lock, self._broker.partition
        )
        self._linger_records = linger_records
        self._delays = None if delays_seed is None else random.Random(delays_seed)  # noqa: S311 - repeatable

    @property
    def cluster_id(self) -> str:
        """Unique per instance."""
        return self._broker.cluster_id

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics that exist, of those asked for."""
        with self._broker.lock:
            return {name: self._broker.topics[name].info for name in topics if name in self._broker.topics}

    def list_topics(self) -> list[str]:
        """Names of all topics, sorted."""
        with self._broker.lock:
            return sorted(self._broker.topics)

    def create(self, topics: Iterable[TopicSpec]) -> dict[str, TopicInfo]:
        """Create what does not exist yet."""
        specs = list(topics)
        with self._broker.lock:
            for spec in specs:
                if spec.name not in self._broker.topics:
                    self._broker.topics[spec.name] = Topic(spec)
            self._broker.expire(changed=True)
            return self.describe(spec.name for spec in specs)

    def check_create(self, topics: Iterable[TopicSpec]) -> None:
        """Whatever is asked for can be created here."""

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics, and every group's offsets in them."""
        with self._broker.lock:
            for name in topics:
                if self._broker.topics.pop(name, None) is None:
                    continue
                self._broker.transactions.forget(name)
                for group in self._broker.groups.values():
                    for partition in [p for p in group.offsets if p.topic == name]:
                        del group.offsets[partition]
            self._broker.expire(changed=True)

    def topic_config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        with self._broker.lock:
            return self._broker.topic(topic).config

    def record_bytes_max(self, topic: str) -> int:
        """The largest record that a topic takes."""
        return int(self.topic_config(topic)["max.message.bytes"])

    def fit_batches(self, topics: Iterable[str]) -> None:
        """Each record is judged by itself here."""

    def alter_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set topic settings; None removes an override."""
        with self._broker.lock:
            found = self._broker.topic(topic)
            check_config(topic, {name: value or "delete" for name, value in changes.items()})
            found.configure(changes)

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop everything before these offsets; −1 means all. Refused on a compact-only topic."""
        with self._broker.lock:
            self._broker.expire()
            for partition in offsets:
                if "delete" not in self._broker.topic(partition.topic).policies:
                    raise BrokerRefused(
                        f"Topic {partition.topic!r} is compacted only: its records cannot be trimmed.",
                        action="set cleanup.policy=compact,delete on it first.",
                        topic=partition.topic,
                    )
            for partition, wanted in offsets.items():
                log = self._broker.partition(partition)
                offset = log.end if wanted == -1 else wanted
                if offset > log.end or offset < 0:
                    raise OffsetOutOfRange(
                        f"{partition} cannot be trimmed to {offset}: it holds {log.log_start} to {log.end}.",
                        action="trim to an offset within the log.",
                        topic=partition.topic,
                        partition=partition.partition,
                        offset=offset,
                        low=log.log_start,
                        high=log.end,
                    )
                log.trim(offset)

    def compact(self, topic: str, *, active_slots: int = 1) -> int:
        """Run the cleaner once over a compacted topic; returns the slots removed.

        The last ``active_slots`` of each partition are left alone, as a broker leaves its active segment.
        """
        with self._broker.lock:
            self._broker.expire()
            found = self._broker.topic(topic)
            assert "compact" in found.policies, f"{topic} is not compacted"
            return sum(
                log.compact(
                    now_ms=self._broker.clock.now_ms(),
                    delete_retention_ms=int(found.config["delete.retention.ms"]),
                    active_slots=active_slots,
                )
                for log in found.partitions
            )

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        """Log start and last stable offset, or end of the log, of each partition."""
        with self._broker.lock:
            self._broker.expire()
            found: dict[TopicPartition, OffsetRange] = {}
            for partition in partitions:
                log = self._broker.partition(partition)
                found[partition] = log.range if stable else OffsetRange(log.log_start, log.end)
            return found

    def ends(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        """Last stable offset, or end of the log, of each partition."""
        return {p: found.offset_next for p, found in self.ranges(partitions, stable=stable).items()}

    def holds_record(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record stands at this offset, of whatever transaction."""
        with self._broker.lock:
            return self._broker.partition(partition).holds_record(offset)

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        stable: bool = True,
        pending_seconds: float | None = None,  # noqa: ARG002 - nobody waits here
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets. Raises ``OffsetsPending`` where a broker would let the caller wait."""
        wanted = list(partitions)
        with self._broker.lock:
            self._broker.expire()
            held = self._broker.transactions.pending(group).intersection(wanted) if stable else set()
            if held:
                names = ", ".join(map(str, sorted(held)))
                raise OffsetsPending(
                    f"An open transaction holds offsets of group {group!r} in {names}.",
                    action="start the writer with its transactional id first, or wait for its timeout.",
                    group=group,
                )
            offsets = self._broker.group(group).offsets
            return {partition: offsets[partition] for partition in wanted if partition in offsets}

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Set a group's offsets from outside. Raises ``StillRunning`` when it has members."""
        with self._broker.lock:
            self._broker.expire()
            if self._broker.group(group).members:
                raise StillRunning(
                    f"Group {group!r} has running members; its offsets cannot be set from outside.",
                    action="stop the workers of the application, then try again.",
                    group=group,
                )
            self._broker.group(group).offsets.update(offsets)

    def group_members(self, group: str) -> list[str]:
        """Ids of the members of a group right now."""
        with self._broker.lock:
            self._broker.expire()
            return sorted(self._broker.group(group).members)

    def group_assignments(self, group: str) -> list[AssignedMember]:
        """The members of a group right now, and what is assigned to each."""
        with self._broker.lock:
            self._broker.expire()
            found = sorted(self._broker.group(group).members.items())
            return [AssignedMember(name, "memory", frozenset(member.owned)) for name, member in found]

    def end_sessions(self, group: str) -> None:
        """Take all members out of a group, as if their session timeouts had passed."""
        with self._broker.lock:
            state = self._broker.group(group)
            for member in list(state.members.values()):
                state.leave(member)
            self._broker.expire(changed=True)

    def lose_leaders(self, of: Iterable[TopicPartition | str]) -> None:
        """From here on no marker gets to these partitions, or to the offsets of these groups; none of it all: again.

        As Kafka 4.1 to 4.3 leave markers out where there is no leader (KAFKA-20734). Records still get there.
        """
        with self._broker.lock:
            self._broker.transactions.leaderless = set(of)

    def reader(self, *, follows: bool = False) -> MemoryReader:  # noqa: ARG002 - nobody waits here
        """A new reader."""
        return MemoryReader(self._broker)

    def writer(self, transactional_id: str | None = None) -> MemoryWriter | DelayedWriter:
        """A new writer, which fences older ones of its transactional id."""
        made = MemoryWriter(self._broker, transactional_id, self._linger_records)
        return made if self._delays is None else DelayedWriter(made, self._broker, self._delays)

    def fence(self, transactional_id: str) -> None:
        """Fence every writer of an id."""
        with self._broker.lock:
            self._broker.expire()
            self._broker.transactions.register(transactional_id)

    def group_consumer(
        self,
        group: str,
        topics: Sequence[str],
        listener: GroupListener,
        *,
        member: str | None = None,
        independent: bool = False,
    ) -> MemoryGroupConsumer:
        """Join a group."""
        return MemoryGroupConsumer(self._broker, group, topics, listener, member, independent=independent)

    def close(self) -> None:
        """Nothing to release: the log stays readable through other handles."""
