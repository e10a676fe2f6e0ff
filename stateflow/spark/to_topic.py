"""Any DataFrame into a topic, exactly once: how rows of Spark become the input of an application.

    writer = TopicWriter(connection, "orders", name="orders-from-files")
    frame.selectExpr("id AS key", "to_json(struct(*)) AS value").writeStream.foreachBatch(writer).start()

Each micro-batch is dealt to the topic's partitions by key, as Kafka's default partitioner does, and each partition's
rows are one transaction, which also commits the number of the micro-batch in a group of the writer's own. An attempt
first fences those before it, then looks at that number: what is written is not written again. So each row is in the
topic once for readers of committed data, if Spark gives the same rows for a micro-batch again, as it does for every
source that can be replayed; how they are spread over tasks does not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from stateflow.errors import ConfigError, TopicMissing
from stateflow.log.base import Cluster, Committed
from stateflow.partitioner import partition_of
from stateflow.record import TopicPartition, is_topic_name
from stateflow.spark.engine import collected
from stateflow.spark.failure import Failure, result_or_failure
from stateflow.spark.kept_connection import kept_cluster
from stateflow.times import whole_time_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from stateflow.spark.connection import Connection

_LOG = logging.getLogger(__name__)

_COLUMNS = {"key", "value", "timestamp"}
_KINDS = ("string", "binary")
_QUERY_ID = "sql.streaming.queryId"
_NO_QUERY = "static"
Sent = tuple[bytes, bytes | None, int | None]
"""Key, value and time (ms) of a record."""


@dataclass(frozen=True, slots=True)
class TopicWriter:
    """Writes a DataFrame's rows to a topic; ``foreachBatch`` takes it as it is.

    Columns: ``key`` and ``value``, text or bytes (a null value is a tombstone), and ``timestamp`` if records shall have
    one of their own. ``name`` is the query's for good, as its checkpoint is: it names the group that holds how far it
    has come. Another query is refused under it. A static DataFrame is written by one call, as micro-batch 0: again, it
    writes what is missing. The next one under the same name is number 1.
    """

    connection: Connection
    topic: str
    name: str

    def __call__(self, frame: DataFrame, batch: int) -> Any:  # an int; the type of foreachBatch wants None
        """Write one micro-batch; again, it writes what is missing of it. Returns the number of records written.

        A static DataFrame of whose number all is written already is passed over with a warning. Raises
        ``TopicMissing``, ``ConfigError``.
        """
        self.check(frame)
        with closing(self.connection.open()) as cluster:
            info = cluster.describe([self.topic]).get(self.topic)
        if info is None:
            raise TopicMissing(
                f"there is no topic {self.topic!r}.",
                action="create it, for example with `stateflow topics apply APP`.",
                topic=self.topic,
            )
        query = query_of(frame)
        names = [name for name in ("key", "value", "timestamp") if name in frame.columns]
        keyed = frame.select(*names).rdd.mapPartitions(partial(_records, info.partitions))
        placed = keyed.partitionBy(info.partitions, _as_it_is)
        written = collected(placed.mapPartitionsWithIndex(WriteTask(self, query, batch)).collect)
        if all(count is None for count in written):
            passed_over(query, batch, self.name)
        return sum(count or 0 for count in written)

    def check(self, frame: DataFrame) -> None:
        """Raise ``ConfigError`` for columns that are no record, or a name that cannot name a group."""
        types = dict(frame.dtypes)
        wrong = set(types) - _COLUMNS or {"key", "value"} - set(types)
        wrong |= {name for name in ("key", "value") if types.get(name) not in _KINDS}
        if types.get("timestamp", "timestamp") != "timestamp":
            wrong.add("timestamp")
        if wrong or not is_topic_name(self.name):
            raise ConfigError(
                f"the rows cannot be written to {self.topic!r}: {', '.join(sorted(wrong)) or self.name}.",
                action="select `key` and `value` as text or bytes, `timestamp` as a timestamp if there is one; name the"
                " writer with letters, digits, dots, - and _.",
            )

    @property
    def group(self) -> str:
        """The group that holds the number of the next micro-batch of each partition."""
        return f"{self.name}-to-{self.topic}"


@dataclass(frozen=True, slots=True)
class WriteTask:
    """What an executor does with the rows of one partition of the topic."""

    writer: TopicWriter
    query: str
    batch: int

    def __call__(
        self, partition: int, rows: Iterable[tuple[int, Sent | None]]
    ) -> Iterator[int | Failure | None]:
        """The number of records written; None where an earlier attempt has done it."""
        cluster = kept_cluster(self.writer.connection)
        yield result_or_failure(partial(self._written, cluster, partition, rows))

    def _written(
        self, cluster: Cluster, partition: int, rows: Iterable[tuple[int, Sent | None]]
    ) -> int | None:
        return write_batch(
            cluster,
            TopicPartition(self.writer.topic, partition),
            self.writer.group,
            MicroBatch(self.query, self.batch),
            (_with_key(sent) for _, sent in rows),
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One of a query's, by its number; the query by the id that it has in its checkpoint."""

    query: str
    number: int


def query_of(frame: DataFrame) -> str:
    """The id, in its checkpoint, of the query whose micro-batch this is; the same word for every static DataFrame."""
    return str(frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or _NO_QUERY)


def passed_over(query: str, batch: int, name: str) -> None:
    """Tell that a micro-batch is there already: expected of a query that begins again, not of static DataFrames."""
    say = _LOG.warning if query == _NO_QUERY else _LOG.info
    say(
        "Nothing was written: micro-batch %d is written already as %r. If these are other rows, give another number,"
        " writer(frame, %d), or another name.",
        batch,
        name,
        batch + 1,
    )


def write_batch(
    cluster: Cluster, target: TopicPartition, group: str, batch: MicroBatch, records: Iterable[Sent]
) -> int | None:
    """Write one partition's part of a micro-batch in one transaction; returns the records written, None if it is there.

    Earlier attempts are fenced first: on return, or after any failure, the part is there once or not at all. Raises
    ``ConfigError`` where another query has written under the group: its numbers say nothing of this one.
    """
    with closing(cluster.writer(f"{group}-{target.partition}")) as writer:
        done = cluster.committed(group, [target]).get(target)
        if done is not None and done.metadata != batch.query:
            raise ConfigError(
                f"another query, or one with another checkpoint, has written to {target.topic!r} under this name.",
                action="go on with that one's checkpoint folder; or take another name, and see that the rows which are"
                " there already do not come again.",
                group=group,
            )
        if done is not None and done.offset_next > batch.number:
            return None
        writer.begin()
        written = 0
        for key, value, timestamp_ms in records:
            writer.send(target.topic, key, value, partition=target.partition, timestamp_ms=timestamp_ms)
            written += 1
        writer.send_offsets({target: Committed(batch.number + 1, batch.query)}, group, None)
        writer.commit()
    return written


def _records(partitions: int, rows: Iterable[Any]) -> Iterator[tuple[int, Sent | None]]:
    """The rows by the partition that each belongs to; None for every partition where a row has no key.

    So no partition is written, and the error is the writer's, as any other: one raised here would be tried again.
    """
    for row in rows:
        cells = row.asDict()
        key, value, at = _bytes(cells["key"]), _bytes(cells["value"]), cells.get("timestamp")
        if key is None:
            yield from ((partition, None) for partition in range(partitions))
            return
        # Spark's timestamps come without a time zone, in that of the process.
        timestamp_ms = whole_time_ms(at.astimezone(), "timestamp") if isinstance(at, datetime) else None
        yield partition_of(key, partitions), (key, value, timestamp_ms)


def _with_key(sent: Sent | None) -> Sent:
    if sent is None:
        raise ConfigError(
            "a row has no key, and keys say where rows go; nothing of its micro-batch was written.",
            action="select another column as `key`, or leave such rows out: frame.where('key IS NOT NULL').",
        )
    return sent


def _bytes(cell: Any) -> bytes | None:
    return cell.encode() if isinstance(cell, str) else None if cell is None else bytes(cell)


def _as_it_is(number: int) -> int:
    return number
