"""A member of a consumer group on a Kafka cluster, with cooperative rebalance and delayed start.

In the assignment callback nothing is assigned to the client library: a partition is read only after ``start``
names its offset, by an incremental assignment, and so restore comes first. The group's protocol does not mind:
what a member owns is the group's assignment, not what the library reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from stateflow.errors import MembershipLost, StateflowError
from stateflow.log.base import Committed, GroupListener, GroupMetadata
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.failures import error_of, is_membership, is_passing, typed
from stateflow.log.kafka.fetching import Fetching, started
from stateflow.log.kafka.leaving import hear_out, leave
from stateflow.log.kafka.offsets import Offsets, client_offsets
from stateflow.log.kafka.settings import Settings
from stateflow.log.kafka.unowned_partitions import UnownedPartitionMonitor
from stateflow.record import RecordBatch, TopicPartition

_CLOSE_SECONDS_MAX = 15.0


class KafkaGroupConsumer:
    """Implements :class:`stateflow.log.base.GroupConsumer`."""

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str],
        listener: GroupListener,
        *,
        admin: Admin,
        unreachable_seconds: float,
        independent: bool = False,
    ) -> None:
        self._group = str(settings["group.id"])
        self._listener = listener
        self._independent = independent
        self._admin = admin
        self._offsets = Offsets(admin)
        self._fetching = Fetching(admin.clock, admin.bootstrap, unreachable_seconds, self._failed)
        self._in_callback = False
        self._raised: BaseException | None = None
        self._kept: list[RecordBatch] = []
        self._dealt: set[TopicPartition] = set()
        self._untold: set[TopicPartition] = set()
        self._closed = False
        self._consumer = Consumer({**settings, "error_cb": self._fetching.broker_event}, logger=client_log)
        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, partitions: self._assigned(_places(partitions)),
            on_revoke=lambda _, partitions: self._released(_places(partitions), listener.on_revoked),
            on_lost=lambda _, partitions: self._released(_places(partitions), listener.on_lost),
        )
        is_static = "group.instance.id" in settings
        self._orphans = UnownedPartitionMonitor(admin, settings, topics) if is_static else None

    def poll(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Serve the group and read. Raises what the listener raised, and ``MembershipLost`` when replaced."""
        if self._kept:
            kept, self._kept = self._kept, []
            return kept
        batches = self._fetching.consume(self._consumer, max_records, timeout_seconds)
        if self._raised is not None:
            self._kept = batches
            self._raise_listener_error()
        return batches

    def start(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Begin reading at these offsets."""
        if not offsets:
            return
        again = [partition for partition in offsets if partition in self._fetching.positions]
        if again:
            self.stop(again)
        self._fetching.positions.update(offsets)
        if not self._in_callback:
            self._consumer.incremental_assign(started(offsets))

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading; unknown partitions are ignored."""
        gone = [
            partition for partition in partitions if self._fetching.positions.pop(partition, None) is not None
        ]
        self._kept = [batch for batch in self._kept if batch.source not in gone]
        if gone and not self._in_callback:
            self._consumer.incremental_unassign([ClientPartition(*partition) for partition in gone])

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hold back started partitions without losing their place."""
        self._consumer.pause([ClientPartition(*partition) for partition in partitions])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        self._consumer.resume([ClientPartition(*partition) for partition in partitions])

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be read of a started partition."""
        return self._fetching.positions[partition]

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit input offsets. Raises ``MembershipLost`` when the group went on without this member."""
        if not offsets:
            return

        def request(_: float) -> None:
            try:
                done = self._consumer.commit(offsets=client_offsets(offsets), asynchronous=False)
            except KafkaException as raised:
                if error_of(raised).code() != KafkaError._FATAL:
                    raise
                raise self._replaced(error_of(raised)) from raised
            for partition in done or []:
                if partition.error is not None:
                    raise KafkaException(partition.error)

        self._admin.call(f"committing offsets of group {self._group!r}", request)

    def metadata(self) -> GroupMetadata:
        """Current proof of membership; a rebalance makes it stale, so ask again for every commit."""
        proof: GroupMetadata = self._consumer.consumer_group_metadata()
        return proof

    @property
    def member_id(self) -> str:
        """What the coordinator calls this member; empty before it has joined."""
        return "" if self._closed else str(self._consumer.memberid() or "")

    def close(self) -> None:
        """Give everything up, leave, and release the connection."""
        if self._closed:
            return
        self._closed = True
        if self._orphans is not None:  # it is a static member
            self._orphans.close()
            hear_out(self._consumer, self._admin.clock)
        else:
            leave(self._consumer, lambda: bool(self._dealt), self._admin.clock)
        # Nothing is held any more by now: should the library not come to an end, the process need not wait for it.
        closing = threading.Thread(target=self._consumer.close, name=f"leave-{self._group}", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS_MAX)
        if closing.is_alive():
            client_log.warning("The client does not leave group %s; its session ends by itself.", self._group)
        self._raise_listener_error()

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._dealt.update(partitions)
        if self._closed:  # the listener need not begin what it would have to give up at once
            self._untold.update(partitions)
            self._consumer.incremental_assign([])
            return
        before = dict(self._fetching.positions)
        self._tell(self._listener.on_assigned, partitions)
        added = {p: offset for p, offset in self._fetching.positions.items() if p not in before}
        self._consumer.incremental_assign(started(added))

    def _released(
        self, partitions: list[TopicPartition], tell: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        self._dealt.difference_update(partitions)
        before = set(self._fetching.positions)
        self._tell(tell, [partition for partition in partitions if partition not in self._untold])
        for partition in [] if self._independent else partitions:
            self._fetching.positions.pop(partition, None)
        gone = before - set(self._fetching.positions)
        self._consumer.incremental_unassign([ClientPartition(*partition) for partition in gone])

    def _tell(
        self, tell: Callable[[Sequence[TopicPartition]], None], partitions: list[TopicPartition]
    ) -> None:
        """Run the listener; what it raises waits until the client library has returned."""
        if not partitions:
            return
        self._in_callback = True
        try:
            tell(sorted(partitions))
        except BaseException as raised:  # noqa: BLE001 - kept for _raise_listener_error, never dropped
            self._raised = self._raised or raised
        finally:
            self._in_callback = False

    def _raise_listener_error(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised

    def _failed(
        self, error: KafkaError, partition: TopicPartition | None, offset: int
    ) -> StateflowError | None:
        if is_passing(error) or error.code() == KafkaError._MAX_POLL_EXCEEDED:
            return None  # the library joins again by itself; the listener has been told of what was lost
        if error.code() == KafkaError._AUTO_OFFSET_RESET and partition is not None:
            return self._offsets.out_of_range(partition, self._fetching.positions.get(partition, offset))
        if error.fatal() or error.code() == KafkaError._FATAL or is_membership(error):
            return self._replaced(error)
        return typed(error, f"reading as a member of group {self._group!r}", self._admin.bootstrap)

    def _replaced(self, error: KafkaError) -> MembershipLost:
        return MembershipLost(
            f"This member of group {self._group!r} was replaced ({error.name()}: {error.str()}).",
            action="stop this instance, or give each worker a member name of its own.",
            group=self._group,
        )


def _places(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]
