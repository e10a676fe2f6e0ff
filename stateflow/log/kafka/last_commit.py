"""Whether a client's last commit has reached every partition, asked before anything else of its id may end there.

A broker may answer a commit at once without a marker of it where there is no leader (KAFKA-20734), a broker that stops
in order above all. The next marker of the same producer decides there. An abort would undo the commit in that partition
and not in others; and whatever it ends, the coordinator forgets how the commit before had ended. So

- where partitions have no other replica, and a leader can be missed easily, the next transaction is begun only when
  the commit has been seen everywhere: the coordinator may abort one by its time-out, and asks nobody;
- anywhere else it is looked for before an abort;
- and anywhere a client begins nothing after a commit that waited long for brokers.

A client in doubt begins and aborts nothing: what is open is left as by a process that died. The next writer of the id
asks the coordinator first, and then fences, which aborts it (``runtime.opening.hanging_transactions``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaException

from stateflow.errors import StateflowError, TransactionAborted
from stateflow.log.base import Appended
from stateflow.log.kafka.admin import OFFSETS, Admin
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.topics import Topics
from stateflow.log.kafka.transactions import KafkaTransactions
from stateflow.record import TopicPartition

SLOW_SECONDS = 2.5
"""A broker is taken for dead only after ``broker.session.timeout.ms``, 9 s unless somebody has set it.

Everything else of a commit is acknowledged before its end is asked for, so whoever asks a broker that goes away in that
moment waits for as long as it is away.
"""
_ANY_OFFSET = 2**63 - 1
_ARRIVAL_SECONDS_MAX = 2.0
"""How long markers that may be on their way are waited for."""
_LOOK_SECONDS = 0.005


class LastCommit:
    """What one transactional client committed last. To be used by one thread at a time."""

    def __init__(
        self, admin: Admin, topics: Topics, transactions: KafkaTransactions, transactional_id: str
    ) -> None:
        self._admin = admin
        self._topics = topics
        self._transactions = transactions
        self._id = transactional_id
        self._producer: int | None = None
        self._written: dict[TopicPartition, int] = {}
        self._places: dict[str, TopicPartition | None] = {}
        """Group → where its offsets are; None where one may not see that."""
        self._offsets_at: TopicPartition | None = None
        """Where the open transaction has offsets of a group."""
        self._is_in_doubt = False
        self._slowest_seconds = 0.0

    def answered_after(self, seconds: float) -> None:
        """Brokers took so long for a request that is part of a commit. For its records they may: a leader has them."""
        self._slowest_seconds = max(self._slowest_seconds, seconds)

    def added_offsets(self, group: str) -> None:
        """The open transaction has offsets of a group, all of them in one partition."""
        if group not in self._places:  # their number stays as it was made
            partitions = self._topics.partitions(OFFSETS, 0)
            self._places[group] = (
                TopicPartition(OFFSETS, java_hash(group) % partitions) if partitions else None
            )
        self._offsets_at = self._places[group]

    def committed(self, appended: Mapping[TopicPartition, Appended]) -> None:
        """The open transaction was committed, with these records; where leaders can be missed, it is looked for."""
        self._written = {partition: at.offset for partition, at in appended.items()}
        if self._offsets_at is not None:
            self._written[self._offsets_at] = _ANY_OFFSET
        self._offsets_at = None
        if not self._topics.are_replicated(partition.topic for partition in self._written):
            self._is_in_doubt = not self._is_everywhere()
            self._written = self._written if self._is_in_doubt else {}

    def leaves_abort(self) -> bool:
        """Whether the open transaction, which is given up, has to be left to the next writer of the id."""
        adds_more = self._offsets_at is not None and self._offsets_at in self._written  # not to be told apart
        self._is_in_doubt = self._is_in_doubt or adds_more or not self._is_everywhere()
        if self._is_in_doubt:
            client_log.warning(
                "It is not certain that the last commit of %s has reached every partition; what was begun since is"
                " not aborted here: whoever opens its task next does so.",
                self._id,
            )
        return self._is_in_doubt

    def check(self) -> None:
        """Raise ``TransactionAborted`` if this client may begin no other transaction."""
        if not self._is_in_doubt and self._slowest_seconds <= SLOW_SECONDS:
            return
        why = "as brokers may have been away"
        if not self._is_in_doubt:
            why = f"as brokers left a commit without an answer for {self._slowest_seconds:.1f} s"
        raise TransactionAborted(
            f"It is not certain that the last commit has reached every partition, {why}.",
            action="open the task again; a new owner looks after it.",
            transactional_id=self._id,
            passing=True,
        )

    def _is_everywhere(self) -> bool:
        deadline = self._admin.clock.monotonic_seconds() + _ARRIVAL_SECONDS_MAX
        wanted = self._written
        try:
            while wanted := self._undecided(wanted):
                if self._admin.clock.monotonic_seconds() >= deadline:
                    return False
                time.sleep(_LOOK_SECONDS)
        except (StateflowError, KafkaException) as error:
            client_log.info("Whether a commit has reached every partition cannot be seen: %s", error)
            return False
        return True

    def _undecided(self, written: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not written:
            return {}
        if self._producer is None:
            self._producer = self._transactions.producer_of(self._id)
        if self._producer is None:  # these brokers cannot be asked, which was said
            return {}
        only_replica = self._topics.have_one_replica(partition.topic for partition in written)
        found = self._transactions.undecided(self._producer, written, only_replica=only_replica)
        return {partition: written[partition] for partition in found or ()}


def java_hash(text: str) -> int:
    """``Utils.abs(text.hashCode())`` of Java, by which Kafka places a group's offsets."""
    hashed = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed & 0x7FFFFFFF
