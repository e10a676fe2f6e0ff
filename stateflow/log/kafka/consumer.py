"""A member of a consumer group on a Kafka cluster, with cooperative rebalance and delayed start.

In the assignment callback nothing is assigned to the client library: a partition is read only after ``start``
names its offset, by an incremental assignment, and so restore comes first. The group's protocol does not mind:
what a member owns is the group's assignment, not what the library reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from stateflow.errors import StateflowError
from stateflow.log.base import Committed, GroupListener, GroupMetadata
from stateflow.log.kafka.admin import Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.failures import error_of, is_membership, is_passing, replaced, typed
from stateflow.log.kafka.fetching import CONSUME_MAX, ClientStuck, Fetching, places_of, started
from stateflow.log.kafka.former_ids import FormerIds
from stateflow.log.kafka.leaving import close_in_time, hear_out, leave, part
from stateflow.log.kafka.offsets import Offsets, client_offsets
from stateflow.log.kafka.proofs import LiveProof, renewed
from stateflow.log.kafka.settings import Settings
from stateflow.log.kafka.streams import Stream, append_batch, made_consumer
from stateflow.log.kafka.taken_names import OwnIds, TakenName, Verdict
from stateflow.log.kafka.unowned_partitions import UnownedPartitionMonitor
from stateflow.record import RecordBatch, TopicPartition

_VERIFY_SECONDS = 10.0
_DESCRIBE_SECONDS_MAX = 5.0
_PART_SECONDS_MAX = 5.0


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
        self._topics = list(topics)
        self._fetching = Fetching(
            admin.clock, admin.bootstrap, unreachable_seconds, self._failed, admin.is_reachable
        )
        self._in_callback = False
        self._raised: BaseException | None = None
        self._kept: list[RecordBatch] = []
        self._owned: set[TopicPartition]
        """What the group has assigned to the client in use."""
        self._untold: set[TopicPartition] = set()
        self._closed = False
        self._verify_next = 0.0
        self._unknown_member = ""
        """What this member is called, if the group did not know it when it was asked last."""
        self._settings: Settings = {**settings, "error_cb": self._fetching.broker_event}
        self._live_proof: LiveProof | None = None
        self._polled_proof: GroupMetadata | None = None
        """As of the last poll or callback, where the client cannot be asked from other threads."""
        self._is_static = "group.instance.id" in settings
        self._may_be_put_out = False
        """A static member's former client had not come to its end when this one joined."""
        self._was_stuck = False
        """That was so once."""
        self._is_put_out = False
        """It has taken this one's place meanwhile."""
        self._own_ids, self._former_ids = OwnIds(), FormerIds(admin, settings)
        self._fence: KafkaError | None = None
        """What a static member was put out of the group with."""
        self._taken: TakenName | None = None
        """Whether it may join again; None unless it was fenced. It has no partitions then, and no client that works."""
        self._stream, self._consumer = self._joined()
        self._unowned_monitor = UnownedPartitionMonitor(admin, settings, topics) if self._is_static else None

    def _joined(self) -> tuple[Stream | None, Consumer]:
        """A client that becomes a member, and the stream of its records. One that was replaced is not listened to."""
        stream, consumer = made_consumer(self._settings, CONSUME_MAX)
        self._live_proof = None if stream is None else LiveProof(stream.client)
        self._polled_proof = None
        owned = self._owned = set()

        def assigned(_: Consumer, partitions: list[ClientPartition]) -> None:
            owned.update(places_of(partitions))
            if owned is self._owned:
                self._own_ids.note(self.member_id)
                self._former_ids.note(self.member_id)
                self._assigned(places_of(partitions))
            else:
                consumer.incremental_assign([])

        def released(
            tell: Callable[[Sequence[TopicPartition]], None], partitions: list[ClientPartition]
        ) -> None:
            owned.difference_update(places_of(partitions))
            if owned is self._owned:
                self._released(places_of(partitions), tell)
            else:
                consumer.incremental_unassign([])

        def lost(_: Consumer, partitions: list[ClientPartition]) -> None:
            released(self._listener.on_lost, partitions)  # which waits for commits that are on their way
            if owned is self._owned:
                self._former_ids.lost(self.member_id)

        consumer.subscribe(
            self._topics,
            on_assign=assigned,
            on_lost=lost,
            on_revoke=lambda _, partitions: released(self._listener.on_revoked, partitions),
        )
        return stream, consumer

    def _rejoin(self, why: str = "does not find back to it") -> None:
        """Become a member by another client. Whatever was assigned to this one is lost: its session is long over.

        A static member's former client goes first. Where it finds back to the brokers amid its end and joins again, it
        would put out its successor, which has the same name, and stay in the group without anybody to read for it.
        """
        client_log.warning("The client of group %s %s: another takes its place.", self._group, why)
        stuck, owned = self._consumer, self._owned
        self._lose_all()
        self._is_put_out, self._fence, self._taken = False, None, None
        if self._is_static:  # such a member keeps its place in the group
            parting = part(stuck, self._group, before=partial(hear_out, stuck, self._admin.clock))
            parting.join(_PART_SECONDS_MAX)
            self._may_be_put_out = parting.is_alive()
            self._was_stuck |= self._may_be_put_out
        else:
            part(stuck, self._group, before=partial(leave, stuck, lambda: bool(owned), self._admin.clock))
        self._stream, self._consumer = self._joined()
        self._read_from(self._fetching.positions)
        self._raise_listener_error()

    def _lose_all(self) -> None:
        """Read no more by this client, and tell the listener; what the client has to tell is nobody's concern then."""
        self._let_go_of_stream()
        lost = sorted(self._owned - self._untold)
        self._owned = set()
        self._untold.clear()
        self._tell(self._listener.on_lost, lost)
        if not self._independent:
            self._fetching.positions.clear()
        self._consumer.incremental_unassign(self._consumer.assignment())

    def _regain_name(self, fence: KafkaError, timeout_seconds: float) -> None:
        """Join again unless another process has this name, ``MembershipLost``; waits to know for a time at most."""
        if self._taken is None:
            holder = partial(self._offsets.name_holder, timeout_seconds=_DESCRIBE_SECONDS_MAX)
            is_agreed = self.member_id in self._own_ids and not self._was_stuck
            self._lose_all()
            self._taken = TakenName(
                self._settings, holder, self._own_ids, self._admin.clock, is_agreed=is_agreed
            )
            self._raise_listener_error()
        verdict = self._taken.ask()
        if verdict is Verdict.HELD:
            raise replaced(fence, self._group, str(self._settings["group.instance.id"]))
        if verdict is Verdict.FREE:
            self._rejoin("was fenced, but nobody else has its name")
        else:
            self._admin.clock.pause(min(timeout_seconds, self._taken.rest_seconds()))

    def poll(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Serve the group and read. Raises what the listener raised, and ``MembershipLost`` when replaced."""
        if self._kept:
            kept, self._kept = self._kept, []
            return kept
        if self._is_put_out:
            self._rejoin()
            return []
        if self._fence is not None:
            self._regain_name(self._fence, timeout_seconds)
            return []
        try:
            batches = self._read(max_records, timeout_seconds)
        except ClientStuck:
            self._rejoin()
            return []
        self._note_proof()
        if self._raised is not None:
            self._kept = batches
            self._raise_listener_error()
        return batches

    def _read(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        if self._stream is None:
            return self._fetching.consume(self._consumer, max_records, timeout_seconds)
        batches: list[RecordBatch] = []
        take = partial(append_batch, batches)
        self._fetching.consume_stream(self._consumer, self._stream, max_records, timeout_seconds, take)
        return batches

    @property
    def gives_on_demand(self) -> bool:
        """True with the native core: the Python client has one queue for all."""
        return self._stream is not None

    def let_come(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the records of partitions on demand come by ``poll``."""
        if self._stream is not None:
            self._stream.let_come(partitions)

    def pull(self, partition: TopicPartition, max_records: int) -> list[RecordBatch]:
        """What has arrived of a partition on demand."""
        batches: list[RecordBatch] = []
        if self._stream is not None:
            self._fetching.pull_stream(self._stream, partition, max_records, partial(append_batch, batches))
        return batches

    def _read_from(self, offsets: Mapping[TopicPartition, int], *, on_demand: bool = False) -> None:
        if self._taken is not None:
            return  # the client to come reads all there is then
        if self._stream is not None:
            self._stream.follow_more(offsets, on_demand=on_demand)
        self._consumer.incremental_assign(started(offsets))

    def _read_no_more(self, partitions: Iterable[TopicPartition]) -> None:
        gone = [] if self._taken is not None else list(partitions)
        if self._stream is not None:
            self._stream.forget(gone)
        self._consumer.incremental_unassign([ClientPartition(*partition) for partition in gone])

    def _let_go_of_stream(self) -> None:
        ending, self._live_proof, self._stream = (self._live_proof, self._stream), None, None
        for each in ending:
            if each is not None:
                each.close()

    def start(self, offsets: Mapping[TopicPartition, int], *, on_demand: bool = False) -> None:
        """Begin reading at these offsets; what is started in a callback is never on demand."""
        if not offsets:
            return
        again = [partition for partition in offsets if partition in self._fetching.positions]
        if again:
            self.stop(again)
        self._fetching.positions.update(offsets)
        if not self._in_callback:
            self._read_from(offsets, on_demand=on_demand)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading; unknown partitions are ignored."""
        gone = [
            partition for partition in partitions if self._fetching.positions.pop(partition, None) is not None
        ]
        self._kept = [batch for batch in self._kept if batch.source not in gone]
        if gone and not self._in_callback:
            self._read_no_more(gone)

    def is_at_end(self, partition: TopicPartition) -> bool:
        """True when a started partition was read to its end, and nothing has come since."""
        return self._fetching.is_at_end(partition)

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be read of a started partition."""
        return self._fetching.positions[partition]

    def passed(self) -> set[TopicPartition]:
        """Partitions that were read further without a record since this was asked last."""
        passed, self._fetching.passed = self._fetching.passed, set()
        return passed

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
                raise replaced(error_of(raised), self._group) from raised
            for partition in done or []:
                if partition.error is not None:
                    raise KafkaException(partition.error)

        self._admin.call(f"committing offsets of group {self._group!r}", request)

    def metadata(self) -> GroupMetadata:
        """Current proof of membership; a rebalance makes it stale, so ask again for every commit."""
        proof: GroupMetadata = self._consumer.consumer_group_metadata()
        return proof

    def renewed(self, proof: GroupMetadata) -> GroupMetadata:
        """The same member's proof as of now, or as of the last poll without the native core; else the one given."""
        live = self._live_proof
        return renewed(proof, self._polled_proof if live is None else live.ask())

    def _note_proof(self) -> None:
        if self._live_proof is None:
            self._polled_proof = self.metadata()

    @property
    def member_id(self) -> str:
        """What the coordinator calls this member; empty before it has joined, and from a fence on."""
        return "" if self._closed or self._taken is not None else str(self._consumer.memberid() or "")

    def verify_membership(self) -> None:
        """Join again if the group does not know this member, twice in a row: the client may wait for an answer."""
        now_seconds = self._admin.clock.monotonic_seconds()
        member = self.member_id
        if not member or now_seconds < self._verify_next:
            return
        self._verify_next = now_seconds + _VERIFY_SECONDS
        try:
            is_known = member in self._offsets.group_members(self._group, _DESCRIBE_SECONDS_MAX)
        except StateflowError as error:
            client_log.info("Whether group %s knows this member cannot be seen: %s", self._group, error)
            return
        if not is_known and self._unknown_member == member:
            self._rejoin()
        self._unknown_member = "" if is_known else member

    def close(self) -> None:
        """Give everything up, leave, and release the connection."""
        if self._closed:
            return
        self._closed = True
        self._former_ids.close()
        if self._unowned_monitor is not None:  # it is a static member
            self._unowned_monitor.close()
            hear_out(self._consumer, self._admin.clock)
        else:
            leave(self._consumer, lambda: bool(self._owned), self._admin.clock)
        self._let_go_of_stream()
        close_in_time(self._consumer, self._group)  # nothing is held any more by now
        self._raise_listener_error()

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        if self._closed:  # the listener need not begin what it would have to give up at once
            self._untold.update(partitions)
            self._consumer.incremental_assign([])
            return
        before = dict(self._fetching.positions)
        self._tell(self._listener.on_assigned, partitions)
        added = {p: offset for p, offset in self._fetching.positions.items() if p not in before}
        self._read_from(added)

    def _released(
        self, partitions: list[TopicPartition], tell: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        before = set(self._fetching.positions)
        self._tell(tell, [partition for partition in partitions if partition not in self._untold])
        for partition in [] if self._independent else partitions:
            self._fetching.positions.pop(partition, None)
        gone = before - set(self._fetching.positions)
        self._read_no_more(gone)

    def _tell(
        self, tell: Callable[[Sequence[TopicPartition]], None], partitions: list[TopicPartition]
    ) -> None:
        """Run the listener; what it raises waits until the client library has returned."""
        if not partitions:
            return
        self._note_proof()
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
            if self._may_be_put_out:  # once: the next time it is somebody else
                self._is_put_out, self._may_be_put_out = True, False
            elif self._is_static:
                self._fence = error
            else:
                return replaced(error, self._group)
            return None
        return typed(error, f"reading as a member of group {self._group!r}", self._admin.bootstrap)
