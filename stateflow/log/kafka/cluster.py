"""A Kafka cluster: the door to it, and what hangs on it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Consumer

from stateflow.addresses import check_addresses
from stateflow.clock import Clock, SystemClock
from stateflow.errors import TopicMissing
from stateflow.log.base import AssignedMember, Committed, GroupListener, TopicInfo, TopicSpec
from stateflow.log.kafka.admin import Admin, met
from stateflow.log.kafka.consumer import KafkaGroupConsumer
from stateflow.log.kafka.end_watch import EndWatch, sent_once_seconds
from stateflow.log.kafka.endtxn_guard import EndTxnGuard
from stateflow.log.kafka.housekeeping import Housekeeping
from stateflow.log.kafka.last_commit import LastCommit
from stateflow.log.kafka.offsets import Offsets
from stateflow.log.kafka.reader import KafkaReader
from stateflow.log.kafka.settings import (
    KafkaOptions,
    admin_settings,
    checked,
    client_batch_bytes,
    client_record_bytes_max,
    member_settings,
    reader_settings,
    writer_settings,
)
from stateflow.log.kafka.single_record import holds_record
from stateflow.log.kafka.topics import Topics
from stateflow.log.kafka.transactions import KafkaTransactions
from stateflow.log.kafka.writer import KafkaWriter
from stateflow.record import OffsetRange, TopicPartition

_CONNECT_SECONDS = 5.0


class KafkaCluster:
    """Implements :class:`stateflow.log.base.Cluster`.

    ``client_settings`` are librdkafka's (security above all) and reach every client; they are never logged.
    Nothing is sent before the first call; :func:`connect` asks at once whether a broker answers.
    """

    def __init__(
        self,
        bootstrap: str,
        client_settings: Mapping[str, object] | None = None,
        options: KafkaOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._settings = checked(client_settings or {})
        self._options = options or KafkaOptions()
        self._batch_bytes = client_batch_bytes(self._settings)
        self._clock = clock or SystemClock()
        self._admin = Admin(
            bootstrap,
            admin_settings(bootstrap, self._settings),
            self._clock,
            self._options.request_timeout_seconds,
        )
        self._topics = Topics(self._admin)
        self._offsets = Offsets(self._admin)
        self._housekeeping = Housekeeping()
        self._outsiders: dict[str, object] = {}
        self.transactions = KafkaTransactions(self._admin, self._settings)

    def __repr__(self) -> str:
        return f"KafkaCluster({self.bootstrap!r})"

    @functools.cached_property
    def cluster_id(self) -> str:
        """The cluster's own id."""
        return self._ask_cluster_id(self._options.request_timeout_seconds)

    def _ask_cluster_id(self, timeout_seconds: float) -> str:
        found = self._admin.call(
            "asking for the cluster's id",
            lambda left: met(self._admin.client, left),
            timeout_seconds,
        )
        return str(found.cluster_id)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics that exist, of those asked for."""
        return self._topics.describe(topics)

    def list_topics(self) -> list[str]:
        """Names of all topics, sorted, internal ones left out."""
        return self._topics.list_names()

    def create(self, topics: Iterable[TopicSpec]) -> dict[str, TopicInfo]:
        """Create topics and wait until every partition has a leader."""
        return self._topics.create(topics)

    def check_create(self, topics: Iterable[TopicSpec]) -> None:
        """Ask the brokers whether they would create them."""
        self._topics.check_create(topics)

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics and wait until they are gone."""
        self._topics.delete(topics)

    def topic_config(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        return self._topics.config(topic)

    def record_bytes_max(self, topic: str) -> int:
        """The largest record that a topic takes, and the client."""
        return min(self._topics.record_bytes_max(topic), client_record_bytes_max(self._settings))

    def fit_batches(self, topics: Iterable[str]) -> None:
        """Writers made from now on send no more at a time than each of these topics takes."""
        self._batch_bytes = self._topics.fitting_batch_bytes(self._batch_bytes, topics)

    def alter_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set topic settings; None removes an override."""
        self._topics.alter_config(topic, changes)

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop everything before these offsets; −1 means all that is there."""
        self._offsets.trim(offsets)

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        """Log start and last stable offset, or end of the log, of each partition."""
        return self._offsets.ranges(partitions, stable=stable)

    def ends(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        """Last stable offset, or end of the log, of each partition."""
        return self._offsets.ends(partitions, stable=stable)

    def holds_record(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record stands at this offset, of whatever transaction."""
        settings = reader_settings(self.bootstrap, self._settings, self._options)
        return holds_record(settings, self._admin, partition, offset)

    def committed(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        *,
        stable: bool = True,
        pending_seconds: float | None = None,
    ) -> dict[TopicPartition, Committed]:
        """Committed offsets of a group."""
        return self._offsets.committed(group, partitions, stable=stable, pending_seconds=pending_seconds)

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Set a group's offsets from outside. Raises ``StillRunning`` when it has members."""
        self._offsets.commit(group, offsets)

    def group_members(self, group: str) -> list[str]:
        """Ids of the members of a group right now."""
        return self._offsets.group_members(group)

    def group_assignments(self, group: str) -> list[AssignedMember]:
        """The members of a group right now, and what is assigned to each."""
        return self._offsets.group_assignments(group)

    def reader(self, *, follows: bool = False) -> KafkaReader:
        """A new reader."""
        return KafkaReader(
            reader_settings(self.bootstrap, self._settings, self._options, follows=follows),
            self._admin,
            self._offsets,
            self._options.unreachable_seconds,
        )

    def writer(self, transactional_id: str | None = None) -> KafkaWriter | EndTxnGuard:
        """A new writer. With a transactional id, every older writer of that id is fenced on return."""
        beside = self._housekeeping.served_total
        settings = writer_settings(self.bootstrap, self._settings, self._options, transactional_id, beside)
        settings["batch.size"] = self._batch_bytes
        watch = EndWatch(has_statistics=bool(settings.get("statistics.interval.ms")))
        parts = (settings, self._admin, self._topics, self._outsider_metadata, watch.take)
        if transactional_id is None:
            return KafkaWriter(*parts)
        writer = KafkaWriter(
            *parts, LastCommit(self._admin, self._topics, self.transactions, transactional_id)
        )
        return EndTxnGuard(writer, watch, self._admin.clock, self._housekeeping, sent_once_seconds(settings))

    def fence(self, transactional_id: str) -> None:
        """Fence every writer of an id: by a request or two, where brokers let this client send them."""
        if not self.transactions.fence(transactional_id):
            self.writer(transactional_id).close()

    def group_consumer(
        self,
        group: str,
        topics: Sequence[str],
        listener: GroupListener,
        *,
        member: str | None = None,
        independent: bool = False,
    ) -> KafkaGroupConsumer:
        """Join a group. Raises ``TopicMissing`` when one of the topics does not exist."""
        missing = sorted(set(topics) - set(self.describe(topics)))
        if missing:
            raise TopicMissing(
                f"The topics {', '.join(missing)} do not exist at {self.bootstrap}.",
                action="create them, or check their names in the application.",
                topics=missing,
            )
        return KafkaGroupConsumer(
            member_settings(self.bootstrap, self._settings, self._options, group, member),
            topics,
            listener,
            admin=self._admin,
            unreachable_seconds=self._options.unreachable_seconds,
            independent=independent,
        )

    def is_reachable(self) -> bool:
        """Whether any broker answers a client that was made just now. Takes up to 3 s."""
        return self._admin.is_reachable()

    def close(self) -> None:
        """Close what waits for requests; the administrative connection ends with this object."""
        self.transactions.close()
        self._admin.call_threads.close()

    def _outsider_metadata(self, group: str) -> object:
        """What ``send_offsets_to_transaction`` takes from one who is not a member: the group's name alone."""
        if group not in self._outsiders:
            outsider = Consumer(member_settings(self.bootstrap, self._settings, self._options, group, None))
            try:
                self._outsiders[group] = outsider.consumer_group_metadata()
            finally:
                outsider.close()
        return self._outsiders[group]


def connect(
    brokers: str,
    settings: Mapping[str, object] | None = None,
    options: KafkaOptions | None = None,
    *,
    timeout_seconds: float = _CONNECT_SECONDS,
) -> KafkaCluster:
    """A cluster that answered.

    Raises ``ConfigError`` for a malformed address, and ``BrokerUnreachable``, which names it, within the timeout.
    """
    check_addresses(brokers, "given")
    cluster = KafkaCluster(brokers, settings, options)
    cluster.__dict__["cluster_id"] = cluster._ask_cluster_id(timeout_seconds)
    return cluster
