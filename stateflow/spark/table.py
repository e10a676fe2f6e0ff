"""A Spark data source that reads state as a table: ``spark.read.format("stateflow").options(app=…, store=…)``.

One Spark task per state partition, each up to an offset fixed when the DataFrame is first evaluated; every partition is
whole and consistent with itself. The connector of Spark for Kafka is not needed. Options:

- ``app``, ``store``; ``brokers`` and ``client_file`` (the Kafka client's settings, read by the driver) if the driver's
  ``stateflow.toml`` and environment do not say them;
- ``as_of``, the name of a savepoint, and ``location``, where it is kept if the application's list does not say it;
- ``columns``, the names of those to read, divided by commas: Spark does not tell a Python data source which ones a
  query uses;
- ``keys``, a JSON list of the keys to read, from the partitions that have them.

Conditions are evaluated row by row. Spark would hand them on to a Python data source, but keeps one plan of reading for
all that is derived from a DataFrame: ``frame.where(…)`` would decide which partitions ``frame`` itself reads.

``spark.readStream.format("stateflow").options(…, rows="changes")`` is the change feed (``spark/feed.py``);
``format("stateflow").options(topic=…)`` has the records of any topic (``spark/topic_records.py``).
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from stateflow.errors import ConfigError
from stateflow.query.feed import Start
from stateflow.query.read import TableRequest, where
from stateflow.query.snapshot import Snapshot
from stateflow.spark.connection import Connection
from stateflow.spark.feed import ChangeRequest, FeedLimits, FeedReader
from stateflow.spark.kept_connection import kept_cluster
from stateflow.spark.topic_records import TopicReader, TopicRequest

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SOURCE_NAME = "stateflow"
_SNAPSHOT = "snapshot"
_OPTIONS = {"app", "store", "brokers", "client_file"}
_OF_TABLES = {"as_of", "location", "columns", "keys"}
_OF_CHANGES = {"rows", "starting", "records_max"}
_OF_TOPICS = {"topic", "key", "value", "brokers", "client_file", "starting", "records_max"}


def register(session: SparkSession) -> None:
    """Make ``format("stateflow")`` known to a session."""
    session.dataSource.register(StateSource)


def snapshot_frame(session: SparkSession, connection: Connection, snapshot: Snapshot) -> DataFrame:
    """The newest value per key as a DataFrame; lazy: while others write, it has what was committed when a partition of
    it is read. Keep the result (Parquet, ``cache``) where all evaluations shall see the same.
    """
    register(session)
    reader = session.read.format(SOURCE_NAME).option(_SNAPSHOT, snapshot.to_json())
    reader = reader.option("brokers", connection.brokers)
    if connection.client:
        reader = reader.option("client_file", _client_file(connection.client))
    return reader.load()


def snapshot_rows(session: SparkSession, connection: Connection, snapshot: Snapshot) -> DataFrame:
    """The same rows for whoever wants all of them, without a data source, whose planning starts Python several times.

    Conditions are evaluated row by row.
    """
    read = SnapshotTask(connection, snapshot)
    numbers = len(snapshot.partitions)
    return session.range(0, numbers, 1, max(1, numbers)).mapInArrow(read, snapshot.table.ddl)


class SnapshotTask:
    """The function that Spark runs for each partition, named by its place among them. Secrets travel in it."""

    def __init__(self, connection: Connection, snapshot: Snapshot) -> None:
        self._connection = connection
        self._snapshot = snapshot

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The live rows."""
        for place in (place for batch in rows for place in batch.column(0).to_pylist()):
            yield from self._snapshot.batches(
                kept_cluster(self._connection), self._snapshot.partitions[place]
            )


def change_frame(
    session: SparkSession,
    connection: Connection,
    app: str,
    store: str,
    *,
    starting: Start = "earliest",
    records_max: int | None = None,
) -> DataFrame:
    """The change feed of a store as a streaming DataFrame; its columns are those of ``query.changes.ChangeTable``."""
    register(session)
    reader = session.readStream.format(SOURCE_NAME).options(
        app=app, store=store, rows="changes", starting=starting
    )
    reader = reader.option("brokers", connection.brokers)
    if records_max is not None:
        reader = reader.option("records_max", str(records_max))
    if connection.client:
        reader = reader.option("client_file", _client_file(connection.client))
    return reader.load()


def _client_file(client: Mapping[str, object]) -> str:
    """Client settings in a file that only this user can read: options are shown in Spark's pages and event logs."""
    folder = tempfile.mkdtemp(prefix="stateflow-client-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = Path(folder) / "client.properties"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in client.items()))
    return str(file)


class StateSource(DataSource):
    """The data source ``stateflow``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return SOURCE_NAME

    def schema(self) -> str:
        """The columns that follow from the catalog."""
        if self._is_topic:
            return self._topic().table.ddl
        if self._is_feed:
            return self._feed().columns()
        return self._planned()[1].table.ddl

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        """The reader; the table is fixed here."""
        if self._is_topic:
            return TopicReader(self._topic())
        if self._is_feed:
            raise ConfigError(
                "changes are a stream, and were asked for as a table.",
                action="write spark.readStream.format(…), with trigger(availableNow=True) for those there are by now;"
                ' or leave rows="changes" out to read the state.',
            )
        return StateReader(*self._planned())

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802, ARG002 - Spark's signature
        """The reader of changes, or of a topic's records."""
        if self._is_topic:
            return FeedReader(self._topic())
        if not self._is_feed:
            raise ConfigError(
                "a stream of this format has other columns than the table, and Spark does not say which are wanted.",
                action='add .option("rows", "changes") to readStream.',
            )
        return FeedReader(self._feed())

    @property
    def _named(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.options.items()}

    @property
    def _is_feed(self) -> bool:
        rows = self._named.get("rows", "state")
        if rows not in ("state", "changes"):
            raise ConfigError(f"there are no rows {rows!r}.", action="say rows=state or rows=changes.")
        return rows == "changes"

    def _feed(self) -> ChangeRequest:
        options = _checked(self._named, _OPTIONS | _OF_CHANGES)
        return ChangeRequest(_connection(options), options["app"], options["store"], FeedLimits.of(options))

    @property
    def _is_topic(self) -> bool:
        return "topic" in self._named

    def _topic(self) -> TopicRequest:
        options = self._named
        _check_known(options, _OF_TOPICS)
        return TopicRequest.of(options, _connection(options))

    def _planned(self) -> tuple[Connection, Snapshot]:
        options = self._named
        options.pop("rows", None)
        written = options.pop(_SNAPSHOT, None)
        if written is not None:
            return _connection(options), Snapshot.from_json(written)
        _checked(options, _OPTIONS | _OF_TABLES)
        connection = _connection(options)
        columns = tuple(name.strip() for name in options.get("columns", "").split(",") if name.strip())
        request = TableRequest(
            app=options["app"],
            store=options["store"],
            as_of=options.get("as_of"),
            location=options.get("location"),
            columns=columns,
        )
        cluster = connection.open()
        try:
            snapshot = request.snapshot(cluster)
        finally:
            cluster.close()
        return connection, _of_keys(snapshot, options["keys"]) if "keys" in options else snapshot


def _of_keys(snapshot: Snapshot, written: str) -> Snapshot:
    """Only rows of the keys that the option names."""
    try:
        keys = json.loads(written)
    except ValueError:
        keys = None
    if not isinstance(keys, list):
        raise ConfigError(
            f"the option 'keys' is no JSON list: {written}.",
            action='write them as in .option("keys", \'["ada", "bob"]\').',
        )
    narrowed = snapshot.of_keys(keys)
    if narrowed.routing_keys is None:
        raise ConfigError(
            f"which partitions have the keys {written} cannot be told from their bytes.",
            action="leave the option 'keys' out, and write a condition on the column key.",
        )
    return narrowed


def _check_known(options: Mapping[str, str], known: set[str]) -> None:
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigError(
            f"there is no option {unknown[0]!r} of the format {SOURCE_NAME!r} here.",
            action=f"its options are: {', '.join(sorted(known))}.",
        )


def _checked(options: dict[str, str], known: set[str]) -> dict[str, str]:
    _check_known(options, known)
    missing = [name for name in ("app", "store") if not options.get(name)]
    if missing:
        raise ConfigError(
            f"it is not clear which state is meant: the option {missing[0]!r} is missing.",
            action='write spark.read.format("stateflow").options(app=…, store=…, brokers=…).load().',
        )
    return options


def _connection(options: Mapping[str, str]) -> Connection:
    return Connection(*where(options.get("app", ""), options.get("brokers"), options.get("client_file")))


class StateReader(DataSourceReader):
    """One Spark partition per state partition that may hold a wanted row. Secrets travel in it, and in no option.

    Spark asks one reader for all that is derived from a DataFrame, so nothing here may depend on a condition.
    """

    def __init__(self, connection: Connection, snapshot: Snapshot) -> None:
        self._connection = connection
        self._snapshot = snapshot

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions to read."""
        return [InputPartition(number) for number in self._snapshot.partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The live rows of one of them; none for the partition that Spark makes up where there is none to read."""
        if partition.value is None:
            return
        cluster = self._connection.open()
        try:
            yield from self._snapshot.batches(cluster, partition.value)
        finally:
            cluster.close()
