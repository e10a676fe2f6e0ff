"""Any DataFrame into a table of a database by JDBC, each micro-batch once: Spark's own JDBC sink may write one twice.

    writer = JdbcWriter({"url": "jdbc:postgresql://db/shop", "user": …, "password": …}, "totals", name="totals-feed")
    changes.writeStream.foreachBatch(writer).option("checkpointLocation", "query").start()

Executors write a micro-batch to a staging table beside the target; then the driver moves it over in one transaction
of the database, which also notes the micro-batch's number in the table ``stateflow_batches``. A micro-batch that is
run again finds its number there and does nothing. All SQL is what every database takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stateflow.errors import ConfigError
from stateflow.record import is_topic_name
from stateflow.spark.to_topic import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTES_TABLE = "stateflow_batches"
_NAME_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class JdbcWriter:
    """Writes a DataFrame's rows to a table; ``foreachBatch`` takes it as it is.

    ``options`` are those of Spark's JDBC sink, ``url`` first; ``name`` is the query's for good, as its checkpoint is.
    The target is made by the first micro-batch if it is not there; columns are matched by name, whatever their case.
    With ``keys`` the rows that have the same values there are replaced: a table of the newest rows, if no key is twice
    in a micro-batch. Only one driver of a query may run. A static DataFrame is written by one call, as micro-batch 0.
    """

    options: Mapping[str, str] = field(repr=False)
    table: str
    name: str
    keys: Sequence[str] = ()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write one micro-batch unless it is there. Raises ``ConfigError``, and what the database says."""
        self.check(frame)
        query = query_of(frame)
        with self._database(frame) as database:
            database.make_notes()
            if database.next_batch(self.name, query) > batch:
                return
            staging = f"{self.table}_staging"
            self._write(frame, staging, "overwrite")
            if not database.has(self.table):
                self._write(frame.limit(0), self.table, "append")  # which makes it
            database.take_over(staging, self.table, self.keys)
            database.note(self.name, query, batch + 1)
            database.commit()
            database.drop(staging)

    def check(self, frame: DataFrame) -> None:
        """Raise ``ConfigError`` for what cannot be written."""
        wrong = sorted(set(self.keys) - set(frame.columns))
        named = is_topic_name(self.name) and len(self.name) <= _NAME_CHARACTERS_MAX
        if wrong or not named or "url" not in self.options:
            raise ConfigError(
                f"the rows cannot be written to {self.table!r}: {', '.join(wrong) or self.name}.",
                action="give the option `url`, keys that are columns, and a name of letters, digits, dots, - and _"
                f" (at most {_NAME_CHARACTERS_MAX}).",
            )

    def _write(self, frame: DataFrame, table: str, mode: str) -> None:
        frame.write.format("jdbc").options(**self.options).option("dbtable", table).mode(mode).save()

    @contextmanager
    def _database(self, frame: DataFrame) -> Iterator[_Database]:
        """A connection as Spark makes its own: drivers, logins and all options are the same."""
        jvm: Any = frame.sparkSession.sparkContext._jvm
        jdbc, sql = jvm.org.apache.spark.sql.execution.datasources.jdbc, jvm.org.apache.spark.sql.jdbc
        dialect = sql.JdbcDialects.get(self.options["url"])

        def options(table: str) -> Any:
            return jdbc.JdbcOptionsInWrite(jvm.PythonUtils.toScalaMap({**self.options, "dbtable": table}))

        def exists(table: str) -> bool:
            return bool(jdbc.JdbcUtils.tableExists(connection, options(table)))

        connection = dialect.createConnectionFactory(options(self.table)).apply(-1)
        try:
            connection.setAutoCommit(False)
            yield _Database(connection, dialect, exists)
        finally:
            connection.rollback()  # what was not committed; some databases close no connection with open work
            connection.close()


@dataclass(frozen=True, slots=True)
class _Database:
    """One connection, from the driver's Java process."""

    connection: Any
    dialect: Any
    exists: Callable[[str], bool]
    """Whether there is such a table; Spark asks it as each database wants."""

    def make_notes(self) -> None:
        """The table of the micro-batches' numbers, where there is none yet."""
        if not self.has(NOTES_TABLE):
            text = f"VARCHAR({_NAME_CHARACTERS_MAX}) NOT NULL"
            self._run(
                f"CREATE TABLE {NOTES_TABLE} (writer {text} PRIMARY KEY, query_id {text}, next_batch BIGINT NOT NULL)"
            )
        self.commit()

    def has(self, table: str) -> bool:
        """True when there is such a table."""
        found = self.exists(table)
        self.connection.rollback()  # where there is none the question fails, and spoils the transaction
        return found

    def next_batch(self, name: str, query: str) -> int:
        """The number of the first micro-batch that is not written. Raises ``ConfigError`` for another query's name."""
        statement = self._prepared(f"SELECT query_id, next_batch FROM {NOTES_TABLE} WHERE writer = ?", name)
        rows = statement.executeQuery()
        try:
            if not rows.next():
                return 0
            if rows.getString(1) != query:
                raise ConfigError(
                    f"another query, or one with another checkpoint, has written as {name!r}.",
                    action="go on with that one's checkpoint folder; or take another name, and see that the rows which"
                    " are there already do not come again.",
                )
            return int(rows.getLong(2))
        finally:
            statement.close()
            self.commit()  # the staging table is written by other connections: hold no lock meanwhile

    def take_over(self, staging: str, table: str, keys: Sequence[str]) -> None:
        """The rows of the staging table into the target, in the open transaction."""
        there, new = self._columns(table), self._columns(staging)
        by_name = {name.lower(): name for name in there}
        missing = sorted(name for name in new if name.lower() not in by_name)
        if missing:
            raise ConfigError(
                f"the table {table!r} has no column {missing[0]!r}.",
                action=f"select others, or add it; the table has: {', '.join(there)}.",
            )
        if keys:
            equal = " AND ".join(
                f"{staging}.{self._quoted(name)} = {table}.{self._quoted(by_name[name.lower()])}"
                for name in keys
            )
            self._run(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {staging} WHERE {equal})")
        into = ", ".join(self._quoted(by_name[name.lower()]) for name in new)
        self._run(f"INSERT INTO {table} ({into}) SELECT {', '.join(map(self._quoted, new))} FROM {staging}")

    def note(self, name: str, query: str, next_batch: int) -> None:
        """Remember, in the open transaction, how far the query has come; fails where another driver was quicker."""
        newer = f"SET next_batch = {next_batch} WHERE writer = ? AND next_batch < {next_batch}"
        update = self._prepared(f"UPDATE {NOTES_TABLE} {newer}", name)
        changed = update.executeUpdate()
        update.close()
        if not changed:
            insert = self._prepared(f"INSERT INTO {NOTES_TABLE} VALUES (?, ?, {next_batch})", name, query)
            insert.executeUpdate()
            insert.close()

    def drop(self, table: str) -> None:
        """Remove a table."""
        self._run(f"DROP TABLE {table}")
        self.commit()

    def commit(self) -> None:
        """Make what was done durable."""
        self.connection.commit()

    def _columns(self, table: str) -> list[str]:
        """The names of a table's columns, as the database writes them."""
        statement = self.connection.createStatement()
        try:
            found = statement.executeQuery(str(self.dialect.getSchemaQuery(table))).getMetaData()
            return [str(found.getColumnName(number)) for number in range(1, found.getColumnCount() + 1)]
        finally:
            statement.close()

    def _quoted(self, name: str) -> str:
        return str(self.dialect.quoteIdentifier(name))

    def _run(self, sql: str) -> None:
        statement = self.connection.createStatement()
        try:
            statement.executeUpdate(sql)
        finally:
            statement.close()

    def _prepared(self, sql: str, *values: str) -> Any:
        statement = self.connection.prepareStatement(sql)
        for number, value in enumerate(values, 1):
            statement.setString(number, value)
        return statement
