"""A database as the driver reaches it, by JDBC: which micro-batches it holds, and the move of one to its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stateflow.errors import ConfigError, StillRunning
from stateflow.spark.task_attempts import ATTEMPT, PARTITION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTES_TABLE = "stateflow_batches"
NAME_CHARACTERS_MAX = 200
_ANSWER_SECONDS = 5
_COLUMN_TYPES = "createTableColumnTypes"
_DRIVERS = {
    "h2": "org.h2.Driver",
    "hsqldb": "org.hsqldb.jdbc.JDBCDriver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "postgresql": "org.postgresql.Driver",
}
"""The driver's class by the word behind ``jdbc:``. Java finds a driver by its URL only in jars that were there when it
started, not in those that ``spark.jars.packages`` brings.
"""


def with_driver(options: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's JDBC sink with the driver's class, where they do not name it and it is known."""
    kind = _kind(options)
    return {**({"driver": _DRIVERS[kind]} if kind in _DRIVERS else {}), **options}


_TEXT = {"hsqldb": "VARCHAR(16777216)"}
"""What text is called by databases that do not know ``TEXT``, Spark's word where it has no dialect of theirs."""


def with_text(options: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """The options with the types of the columns of text that a table is made with, unless they name types already."""
    kind = _kind(options)
    if kind not in _TEXT or not texts or _COLUMN_TYPES in options:
        return dict(options)
    types = [f"`{name.replace('`', '``')}` {_TEXT[kind]}" for name in texts]
    return {**options, _COLUMN_TYPES: ", ".join(types)}


def _kind(options: Mapping[str, str]) -> str:
    return options["url"].removeprefix("jdbc:").partition(":")[0]


@contextmanager
def open_database(session: SparkSession, options: Mapping[str, str]) -> Iterator[Database]:
    """A connection as Spark makes its own: drivers, logins and all options are the same."""
    jvm: Any = session.sparkContext._jvm
    jdbc, sql = jvm.org.apache.spark.sql.execution.datasources.jdbc, jvm.org.apache.spark.sql.jdbc
    dialect = sql.JdbcDialects.get(options["url"])

    def options_for(table: str) -> Any:
        return jdbc.JdbcOptionsInWrite(jvm.PythonUtils.toScalaMap({**with_driver(options), "dbtable": table}))

    def exists(table: str) -> bool:
        return bool(jdbc.JdbcUtils.tableExists(connection, options_for(table)))

    connection = dialect.createConnectionFactory(options_for(NOTES_TABLE)).apply(-1)
    try:
        connection.setAutoCommit(False)
        yield Database(connection, dialect, exists)
    finally:
        if connection.isValid(_ANSWER_SECONDS):  # of one that is lost only the cause shall be told
            connection.rollback()  # what was not committed; some databases close no connection with open work
        connection.close()


@dataclass(frozen=True, slots=True)
class Database:
    """One connection, without auto-commit."""

    connection: Any
    dialect: Any
    exists: Callable[[str], bool]
    """Whether there is such a table; Spark asks it as each database wants."""

    def make_notes(self) -> None:
        """The table of what each query has written, where there is none yet."""
        if not self.has(NOTES_TABLE):
            text = f"VARCHAR({NAME_CHARACTERS_MAX}) NOT NULL"
            self._run(
                f"CREATE TABLE {NOTES_TABLE} (writer {text} PRIMARY KEY, query_id {text}, next_batch BIGINT NOT NULL,"
                f" staging {text})"
            )
        self.commit()

    def has(self, table: str) -> bool:
        """True when there is such a table."""
        found = self.exists(table)
        self.connection.rollback()  # where there is none the question fails, and spoils the transaction
        return found

    def claim(self, name: str, query: str, batch: int, staging: str) -> bool:
        """Have ``staging`` be the table by which the micro-batch comes; False where it is written already.

        Of another driver the staging table is dropped: it cannot move rows over any more. Durable on return, and no
        lock is held. Raises ``ConfigError`` for another query's name.
        """
        known = self._known(name)
        if known is None:
            insert = self._prepared(f"INSERT INTO {NOTES_TABLE} VALUES (?, ?, 0, ?)", name, query, staging)
            claimed = insert.executeUpdate()
            insert.close()
        else:
            query_before, staging_before = known
            if query_before != query:
                raise ConfigError(
                    f"another query, or one with another checkpoint, has written as {name!r}.",
                    action="go on with that one's checkpoint folder; or take another name, and see that the rows which"
                    " are there already do not come again.",
                )
            if self.has(staging_before):
                self._run(f"DROP TABLE {staging_before}")
            claimed = self._update(
                f"SET staging = ? WHERE writer = ? AND next_batch <= {batch}", staging, name
            )
        self.commit()
        return bool(claimed)

    def take_over(self, staging: str, table: str, keys: Sequence[str]) -> int:
        """The rows of the staging table into the target, in the open transaction; returns how many."""
        there = self._columns(table)
        new = [name for name in self._columns(staging) if name not in (PARTITION, ATTEMPT)]
        by_name = {name.lower(): name for name in there}
        missing = sorted(name for name in new if name.lower() not in by_name)
        if missing:
            raise ConfigError(
                f"the table {table!r} has no column {missing[0]!r}.",
                action=f"select others, or add it; the table has: {', '.join(there)}.",
            )
        attempt, partition = self._quoted(ATTEMPT), self._quoted(PARTITION)
        newest = f"{attempt} IN (SELECT MAX({attempt}) FROM {staging} GROUP BY {partition})"
        if keys:
            by_key = {name.lower(): name for name in new}
            equal = " AND ".join(
                self._equal(staging, by_key[name.lower()], table, by_name[name.lower()]) for name in keys
            )
            self._run(f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {staging} WHERE {equal})")
        into = ", ".join(self._quoted(by_name[name.lower()]) for name in new)
        rows = f"SELECT {', '.join(map(self._quoted, new))} FROM {staging} WHERE {newest}"
        return self._run(f"INSERT INTO {table} ({into}) {rows}")

    def _equal(self, staging: str, key: str, table: str, column: str) -> str:
        """That a key of a staged row is the column's value; null is the same as null, which ``=`` does not say."""
        new, old = f"{staging}.{self._quoted(key)}", f"{table}.{self._quoted(column)}"
        # Only where there are any: a database seldom uses an index for what has an OR.
        if not self._has_rows(f"SELECT 1 FROM {staging} WHERE {new} IS NULL"):
            return f"{new} = {old}"
        return f"({new} = {old} OR ({new} IS NULL AND {old} IS NULL))"

    def note(self, name: str, next_batch: int, staging: str) -> None:
        """Remember, in the open transaction, how far the query has come. Raises ``StillRunning``."""
        if not self._update(f"SET next_batch = {next_batch} WHERE writer = ? AND staging = ?", name, staging):
            raise StillRunning(
                f"another driver has begun to write as {name!r}; this one has written nothing of its micro-batch.",
                action="let one driver of a query run, and give each query a name of its own.",
            )

    def drop(self, table: str) -> None:
        """Remove a table."""
        self._run(f"DROP TABLE {table}")
        self.commit()

    def commit(self) -> None:
        """Make what was done durable."""
        self.connection.commit()

    def _known(self, name: str) -> tuple[str, str] | None:
        """The query that writes as ``name``, and its newest staging table."""
        statement = self._prepared(f"SELECT query_id, staging FROM {NOTES_TABLE} WHERE writer = ?", name)
        try:
            rows = statement.executeQuery()
            return (str(rows.getString(1)), str(rows.getString(2))) if rows.next() else None
        finally:
            statement.close()

    def _update(self, change: str, *values: str) -> int:
        statement = self._prepared(f"UPDATE {NOTES_TABLE} {change}", *values)
        try:
            return int(statement.executeUpdate())
        finally:
            statement.close()

    def _has_rows(self, query: str) -> bool:
        statement = self.connection.createStatement()
        try:
            statement.setMaxRows(1)
            return bool(statement.executeQuery(query).next())
        finally:
            statement.close()

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

    def _run(self, sql: str) -> int:
        statement = self.connection.createStatement()
        try:
            return int(statement.executeUpdate(sql))
        finally:
            statement.close()

    def _prepared(self, sql: str, *values: str) -> Any:
        statement = self.connection.prepareStatement(sql)
        for number, value in enumerate(values, 1):
            statement.setString(number, value)
        return statement
