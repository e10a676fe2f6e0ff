"""What a log can do: topics, reading by assignment, writing in transactions, consumer groups.

``stateflow.log.kafka`` speaks to a real cluster, ``stateflow.log.memory`` is the same thing in this process;
one conformance suite (``tests/conformance``) runs over both. Everything above this package uses these
protocols only. All keys, values and headers are bytes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stateflow.log.outgoing import Sender
from stateflow.log.transactions import Transactions
from stateflow.record import OffsetRange, RecordBatch, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create. ``config`` are Kafka's own topic settings."""

    name: str
    partitions: int
    replication: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the cluster describes it. ``topic_id`` is Kafka's UUID: recreated topics get another."""

    name: str
    topic_id: str
    partitions: int
    replication: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's committed position in a partition: next offset to read, and the metadata string beside it."""

    offset_next: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class AssignedMember:
    """A member of a group as others see it: its host as the brokers know it, and what the group has assigned to it."""

    member_id: str
    host: str
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the last record produced to a partition landed."""

    offset: int
    timestamp_ms: int


class GroupMetadata(Protocol):
    """Opaque proof of membership that fences offset commits of a member that was replaced."""


class Reader(Protocol):
    """Reads partitions from given offsets, committed data only. Never joins a group, never commits.

    An offset outside the log raises :class:`~stateflow.errors.OffsetOutOfRange`; it is never reset silently.
    """

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment; reading goes on at the given ``offset_next`` of each partition."""
        ...

    def read(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Up to ``max_records`` records, a batch per partition, possibly none within the timeout."""
        ...

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be read: past markers and compacted gaps too, once the end was reached.

        This, compared with a target fixed before reading, is the only valid test of "caught up".
        """
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class Writer(Sender, Protocol):
    """Produces records; with a transactional id, in transactions. Idempotent, order-preserving, acks=all."""

    def begin(self) -> None:
        """Begin a transaction (no effect without a transactional id)."""
        ...

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], group: str, member: GroupMetadata | None
    ) -> None:
        """Add a group's input offsets to the transaction; ``member`` None proves nothing."""
        ...

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait until everything sent so far is acknowledged. Raises what ``commit`` raises."""
        ...

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Commit the transaction, or flush without one: on return every record is acknowledged and durable.

        Returns where the last record of each touched partition landed. Raises ``ProducerFenced`` (fatal) or
        ``TransactionAborted`` (already aborted here; read the input again from the committed offsets). After
        ``BrokerUnreachable`` the outcome is open: close this writer, make another, and look at what is committed.
        """
        ...

    def abort(self) -> None:
        """Abort the open transaction, if any; nothing of it will ever be visible to a reader."""
        ...

    def close(self) -> None:
        """Abort what is open and release the connection."""
        ...


class GroupListener(Protocol):
    """What a group member is told. Called only from inside ``GroupConsumer.poll`` and ``close``."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These were added. Reading them starts only with ``GroupConsumer.start``."""
        ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These are about to go to another member: commit and let go before returning."""
        ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These are already gone: let go without committing."""
        ...


class GroupConsumer(Protocol):
    """A member of a consumer group with cooperative rebalance.

    An assigned partition is not read until ``start`` names the offset: restore comes first.
    """

    def poll(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """Serve the group and return what arrived; runs the listener's callbacks, and raises what they raise.

        Raises ``MembershipLost`` when this static member was started elsewhere: at once if the group had agreed on it
        here, else when it is known to be alive there, which takes two sessions. Until then it has no partitions.
        """
        ...

    def start(self, offsets: Mapping[TopicPartition, int], *, on_demand: bool = False) -> None:
        """Begin reading assigned partitions (or partitions of co-partitioned topics) at these offsets.

        What is read ``on_demand`` stays with the client until ``pull`` asks for it, and no ``poll`` waits for it;
        ``poll`` may bring it nevertheless, as where ``gives_on_demand`` is False.
        """
        ...

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading; what was fetched ahead is dropped. Unknown partitions are ignored."""
        ...

    @property
    def gives_on_demand(self) -> bool:
        """Whether a start on demand means anything here."""
        ...

    def let_come(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the records of partitions that were started on demand come by ``poll``; others are ignored."""
        ...

    def pull(self, partition: TopicPartition, max_records: int) -> list[RecordBatch]:
        """What has arrived of a partition on demand, without waiting and without callbacks; raises as ``poll`` does.

        May bring what has arrived of others, where a client has been replaced meanwhile.
        """
        ...

    def is_at_end(self, partition: TopicPartition) -> bool:
        """True when a started partition was read to its end, and nothing has come since."""
        ...

    def position(self, partition: TopicPartition) -> int:
        """Next offset to be read of a started partition; see ``Reader.position``."""
        ...

    def passed(self) -> set[TopicPartition]:
        """Partitions that were read further without a record, past markers and gaps, since this was asked last."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit input offsets synchronously (at-least-once; exactly-once uses ``Writer.send_offsets``).

        Raises ``MembershipLost`` when the group went on without this member.
        """
        ...

    def metadata(self) -> GroupMetadata:
        """Current proof of membership for ``Writer.send_offsets``; a rebalance makes an older one stale."""
        ...

    def renewed(self, proof: GroupMetadata) -> GroupMetadata:
        """The proof as of now, in the generation that a rebalance has brought: on any thread, at any time.

        Only if it is of the same member: a client that was put out of the group may have joined again before anybody
        polls, and then others may have had its partitions. The one given is returned then, and brokers refuse it.
        """
        ...

    @property
    def member_id(self) -> str:
        """What the group calls this member; empty before it has joined, another after it was lost and came back."""
        ...

    def verify_membership(self) -> None:
        """Join again if the group has gone on without this member and nothing has told it so; else do nothing.

        For whoever has signs of it, and may be called often: it asks the group only now and then. Runs the listener's
        ``on_lost``, and raises what that raises.
        """
        ...

    def close(self) -> None:
        """Leave the group (a static member stays known until its session ends) and release the connection."""
        ...


class Cluster(Protocol):
    """A Kafka cluster as far as stateflow needs one. Thread-safe; readers and writers are not."""

    @property
    def cluster_id(self) -> str:
        """The cluster's own id; local state is bound to it."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Transactions as others than their writers see them."""
        ...

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics that exist, of those asked for."""
        ...

    def list_topics(self) -> list[str]:
        """Names of all topics, sorted, internal ones (``__…``) left out."""
        ...

    def create(self, topics: Iterable[TopicSpec]) -> dict[str, TopicInfo]:
        """Create topics and wait until they can be used; one that exists already is left as it is."""
        ...

    def check_create(self, topics: Iterable[TopicSpec]) -> None:
        """Raise what creating them would raise, and create nothing."""
        ...

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics and wait until they are gone; a missing one is not an error."""
        ...

    def topic_config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic, read back from the cluster."""
        ...

    def record_bytes_max(self, topic: str) -> int:
        """The largest record, as ``record.record_bytes`` counts, that this client may write to a topic."""
        ...

    def fit_batches(self, topics: Iterable[str]) -> None:
        """Writers made from now on send no more at a time than each of these topics takes.

        What goes to a partition together is held against the topic's ``max.message.bytes`` as a whole, so records that
        it would take one by one could be refused. A topic whose limit cannot be told is passed over, with a warning.
        """
        ...

    def alter_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set topic settings; None removes an override."""
        ...

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """DeleteRecords: drop everything before these offsets. Refused on a compact-only topic."""
        ...

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        """Log start and last stable offset (where a read-committed reader ends) of each partition.

        A transaction that was just committed may still be below the last stable offset for some milliseconds: its
        markers follow its acknowledgement. With ``stable`` False the end is the log's, open transactions included.
        """
        ...

    def ends(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        """The ends of what ``ranges`` tells, for half the requests."""
        ...

    def holds_record(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record stands at this offset, of whatever transaction; False for a marker, or for nothing."""
        ...

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        stable: bool = True,
        pending_seconds: float | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets of a group; partitions without one are absent.

        ``stable`` waits for open transactions that hold offsets of these partitions to end, and raises
        ``OffsetsPending`` when that takes too long (at once in memory, where nothing happens during a wait): longer
        than the request timeout, or soon after ``pending_seconds`` from a coordinator that answers other questions.
        """
        ...

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Set a group's offsets from outside. Raises ``StillRunning`` when the group has members."""
        ...

    def group_members(self, group: str) -> list[str]:
        """Ids of the members of a group right now; empty when it is not running."""
        ...

    def group_assignments(self, group: str) -> list[AssignedMember]:
        """The members of a group right now, sorted by their ids, and what is assigned to each."""
        ...

    def reader(self, *, follows: bool = False) -> Reader:
        """A new reader. One that ``follows`` waits for what comes: brokers are asked less often, ends told later."""
        ...

    def writer(self, transactional_id: str | None = None) -> Writer:
        """A new writer. With a transactional id, every older writer of that id is fenced on return."""
        ...

    def fence(self, transactional_id: str) -> None:
        """Fence every writer of an id and abort what is open of it, as a new writer of it that is closed would do."""
        ...

    def group_consumer(
        self,
        group: str,
        topics: Sequence[str],
        listener: GroupListener,
        *,
        member: str | None = None,
        independent: bool = False,
    ) -> GroupConsumer:
        """Join a group; ``member`` makes the membership static.

        An ``independent`` member reads what ``start`` names, whatever the group assigns, until ``stop``: it uses the
        group for membership, and decides itself who reads what.
        """
        ...

    def close(self) -> None:
        """Release the admin connection."""
        ...
