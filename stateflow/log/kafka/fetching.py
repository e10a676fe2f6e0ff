"""From what the client library hands over to batches in columns, and the position of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from operator import lt
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, StateflowError
from stateflow.log.kafka.admin import answers
from stateflow.log.kafka.client_log import client_log
from stateflow.log.kafka.connection_errors import CHECK_ALL, ConnectionErrors, is_of_connection
from stateflow.log.kafka.failures import error_of, is_passing
from stateflow.log.kafka.streams import Arrived, Stream
from stateflow.record import RecordBatch, TopicPartition

CONSUME_MAX = 10_000  # larger calls are no faster and hold more memory
_LOOK_SECONDS = 15.0
"""Between two looks at whether a client that has lost all brokers is the only one that has: each may take seconds."""
_SERVE_SECONDS = 0.05
"""While a stream is waited for, whatever the group or the connection has to tell is heard so often."""
_NO_HEADERS: tuple[tuple[str, bytes], ...] = ()


class ClientStuck(Exception):
    """This client has lost all brokers and does not find them again, though others reach them."""


class Fetching:
    """Positions of the partitions being read, moved by what :meth:`consume` brings.

    ``failed`` makes the typed error of a partition-level failure, or None when it can be passed over. An error
    that arrives together with records is raised by the next call, so the records are not lost. ``others_answer`` says
    whether a new client would reach a broker.
    """

    def __init__(
        self,
        clock: Clock,
        bootstrap: str,
        unreachable_seconds: float,
        failed: Callable[[KafkaError, TopicPartition | None, int], StateflowError | None],
        others_answer: Callable[[], bool],
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        self.passed: set[TopicPartition] = set()
        """Those read further without a record, for whoever wants to know; bounded by the partitions."""
        self._clock = clock
        self._bootstrap = bootstrap
        self._unreachable_seconds = unreachable_seconds
        self._failed = failed
        self._others_answer = others_answer
        self._connection_errors = ConnectionErrors()
        self._down_since: float | None = None
        self._look_next = 0.0
        self._failures: list[StateflowError] = []
        self._ends: dict[TopicPartition, int] = {}
        self._end_seen: dict[TopicPartition, int] = {}
        """Where each partition's end was when it was last met."""

    def begin(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these, and nothing else; what was met of others before is nobody's concern any more."""
        self.positions = dict(offsets)
        self.passed.clear()
        self._failures.clear()
        self._end_seen.clear()

    def consume(self, consumer: Consumer, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        """What is there, as batches, waiting only while there is nothing; ends of partitions move positions.

        Raises ``ClientStuck`` when the client must be replaced; positions stay as they are.
        """
        self.raise_failure()
        try:
            # A single call would wait for its last record or the whole timeout, also at the end of a partition.
            messages = consumer.consume(1, timeout_seconds)
            if messages and max_records > 1:
                messages += consumer.consume(min(max_records, CONSUME_MAX) - 1, 0)
        except KafkaException as raised:  # fatal errors come out this way
            self._note(error_of(raised), None, -1)
            self.raise_failure()
            return []
        if not messages:
            self._check_outage(consumer)
            return []
        self._down_since = None
        batches = [
            self._in_order(batch_of(partition, rows))
            for partition, rows in self._sort_out(messages).items()
            if partition in self.positions
        ]
        batches = [batch for batch in batches if len(batch)]
        for batch in batches:
            self.positions[batch.source] = batch.offsets[-1] + 1
        self._apply_ends()
        if not batches:
            self.raise_failure()
        return batches

    def consume_stream(
        self,
        consumer: Consumer,
        stream: Stream,
        max_records: int,
        timeout_seconds: float,
        take: Callable[[Arrived | RecordBatch], None],
    ) -> None:
        """As ``consume``, for a client whose records come by a stream; ``take`` is given them while they are there.

        A batch is given for records that did not come in order. Should ``take`` raise, the reader is of no more use.
        """
        self.raise_failure()
        left_seconds = timeout_seconds
        while True:
            if not self._serve(consumer):
                return
            wait_seconds = min(left_seconds, _SERVE_SECONDS)
            if stream.fetch(wait_seconds, min(max_records, CONSUME_MAX)):
                break
            left_seconds -= wait_seconds
            if left_seconds <= 0:
                self._apply_ends()
                self._check_outage(consumer)
                return
        self._take_all(stream, take)

    def pull_stream(
        self,
        stream: Stream,
        source: TopicPartition,
        max_records: int,
        take: Callable[[Arrived | RecordBatch], None],
    ) -> None:
        """The same with what is there of one partition, without serving anything else."""
        self.raise_failure()
        self._ends.clear()
        if stream.pull(source, max_records):
            self._take_all(stream, take)
        else:
            stream.release()

    def _take_all(self, stream: Stream, take: Callable[[Arrived | RecordBatch], None]) -> None:
        self._down_since = None
        has_records = False
        try:
            for trouble in stream.troubles():
                self._take_error(trouble.error, trouble.partition, trouble.offset)
            for arrived in stream.arrived():
                has_records |= self._pass_on(arrived, take)
        finally:
            stream.release()
        self._apply_ends()
        if not has_records:
            self.raise_failure()

    def _serve(self, consumer: Consumer) -> bool:
        """Serve callbacks, and take what concerns no partition; False when the client has failed, which was noted."""
        try:
            beside = consumer.consume(CONSUME_MAX, 0)
        except KafkaException as raised:  # fatal errors come out this way
            self._note(error_of(raised), None, -1)
            self.raise_failure()
            return False
        if self._sort_out(beside):
            raise ClientStuck  # records that the stream was to have: only a new client's order is certain
        return True

    def _pass_on(self, arrived: Arrived, take: Callable[[Arrived | RecordBatch], None]) -> bool:
        position = self.positions.get(arrived.source)
        if position is None:
            return False
        if arrived.in_order and arrived.offset_first >= position:
            take(arrived)
            self.positions[arrived.source] = arrived.offset_last + 1
            return True
        batch = self._in_order(arrived.batch())
        if len(batch):
            take(batch)
            self.positions[batch.source] = batch.offsets[-1] + 1
        return bool(len(batch))

    def is_at_end(self, partition: TopicPartition) -> bool:
        """True when a partition was read to its end, and nothing has come since."""
        return self._end_seen.get(partition) == self.positions.get(partition, -1)

    def raise_failure(self) -> None:
        """Raise the failure that came with the records handed out last."""
        if self._failures:
            raise self._failures.pop(0)

    def broker_event(self, error: KafkaError) -> None:
        """The client library's word on the connection as a whole; an outage is borne for a while."""
        client_log.warning("The Kafka client reports %s: %s.", error.name(), error.str())
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._down_since is None:
            self._down_since = self._clock.monotonic_seconds()
            self._connection_errors.forget()  # the client tries on, and tells again why it fails
            self._look_next = self._down_since + min(_LOOK_SECONDS, self._unreachable_seconds)
        elif is_of_connection(error):
            self._connection_errors.heard(error)
        elif not is_passing(error):
            self._note(error, None, -1)

    def _sort_out(self, messages: list[Any]) -> dict[TopicPartition, list[Any]]:
        rows: dict[TopicPartition, list[Any]] = {}
        self._ends.clear()
        last_topic, last_partition, append = None, -1, None
        for message in messages:
            if message.error() is not None:
                self._take_event(message)
                continue
            topic, partition = message.topic(), message.partition()
            if append is None or partition != last_partition or topic != last_topic:
                last_topic, last_partition = topic, partition
                append = rows.setdefault(TopicPartition(topic, partition), []).append
            append(message)
        return rows

    def _in_order(self, batch: RecordBatch) -> RecordBatch:
        """The batch without what was handed over before: should the client fetch it twice, it counts once."""
        position = self.positions[batch.source]
        if batch.offsets[0] >= position and all(map(lt, batch.offsets, islice(batch.offsets, 1, None))):
            return batch
        once = without_repeated(batch, position)
        client_log.warning(
            "Reading %s: %d records before offset %d came a second time, and were left out.",
            batch.source,
            len(batch) - len(once),
            once.offsets[-1] + 1 if len(once) else position,
        )
        return once

    def _take_event(self, message: Any) -> None:
        error = message.error()
        topic = message.topic()
        partition = TopicPartition(topic, message.partition()) if topic is not None else None
        self._take_error(error, partition, message.offset() if message.offset() is not None else -1)

    def _take_error(self, error: KafkaError, partition: TopicPartition | None, offset: int) -> None:
        if error.code() == KafkaError._PARTITION_EOF and partition is not None:
            self._ends[partition] = self._end_seen[partition] = offset
        else:
            self._note(error, partition, offset)

    def _apply_ends(self) -> None:
        for partition, offset in self._ends.items():
            if partition in self.positions and self.positions[partition] < offset:
                self.positions[partition] = offset
                self.passed.add(partition)

    def _note(self, error: KafkaError, partition: TopicPartition | None, offset: int) -> None:
        failure = self._failed(error, partition, offset)
        if failure is None:
            # What ends a client is told by whoever replaces it, or ends with it.
            say = client_log.info if error.code() == KafkaError._FATAL else client_log.warning
            say("Reading %s: %s: %s.", partition, error.name(), error.str())
        else:
            self._failures.append(failure)

    def _check_outage(self, consumer: Consumer) -> None:
        """While all brokers are away look now and then whether they are; after a long time say so.

        Whoever goes on reading is told again after as long a time: what was fetched before stays, and so do positions.
        """
        now_seconds = self._clock.monotonic_seconds()
        if self._down_since is None or now_seconds < self._look_next:
            return
        self._look_next = now_seconds + _LOOK_SECONDS
        if answers(consumer):
            self._down_since = None
            return
        if self._others_answer():
            self._down_since = None
            raise ClientStuck
        if now_seconds - self._down_since >= self._unreachable_seconds:
            self._down_since = now_seconds
            raise self._unreachable()

    def _unreachable(self) -> BrokerUnreachable:
        failed = self._connection_errors.known
        self._connection_errors.forget()
        return BrokerUnreachable(
            f"No broker at {self._bootstrap} answered for {self._unreachable_seconds:g} s"
            f"{f' ({failed.text})' if failed else ''}.",
            action=failed.action if failed else CHECK_ALL,
            bootstrap=self._bootstrap,
        )


def batch_of(source: TopicPartition, messages: list[Any]) -> RecordBatch:
    """Messages of one partition, in columns."""
    headers = [message.headers() for message in messages]
    return RecordBatch(
        source,
        offsets=[message.offset() for message in messages],
        timestamps_ms=[message.timestamp()[1] for message in messages],
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        headers=[tuple(header) if header else _NO_HEADERS for header in headers] if any(headers) else [],
    )


def without_repeated(batch: RecordBatch, position: int) -> RecordBatch:
    """The rows from ``position`` on whose offsets are above those of all rows before them."""
    rows = []
    for row, offset in enumerate(batch.offsets):
        if offset >= position:
            rows.append(row)
            position = offset + 1
    return RecordBatch(
        batch.source,
        offsets=[batch.offsets[row] for row in rows],
        timestamps_ms=[batch.timestamps_ms[row] for row in rows],
        keys=[batch.keys[row] for row in rows],
        values=[batch.values[row] for row in rows],
        headers=[batch.headers[row] for row in rows] if batch.headers else [],
    )


def started(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    """Starting points as the client library takes them."""
    return [ClientPartition(p.topic, p.partition, offset) for p, offset in offsets.items()]


def places_of(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    """Partitions as the client library gives them, as ours."""
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]
