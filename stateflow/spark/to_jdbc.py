"""Any DataFrame into a table of a database by JDBC, each micro-batch once: Spark's own JDBC sink may write one twice.

    writer = JdbcWriter({"url": "jdbc:postgresql://db/shop", "user": …, "password": …}, "totals", name="totals-feed")
    changes.writeStream.foreachBatch(writer).option("checkpointLocation", "query").start()

1. The driver claims the query's name in the table ``stateflow_batches``, under a staging table of a new name, and drops
   the staging table that a killed driver left. A micro-batch that is written already ends here.
2. Executors write the micro-batch to the staging table. Each row also says which attempt of which task wrote it: an
   executor may die after its rows are committed and before the driver hears of it, and another then writes them again.
3. One transaction moves the rows of the newest attempt of each task over, and notes the micro-batch's number. It fails
   where another driver has claimed the name meanwhile.

All SQL is what every database takes.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from stateflow.errors import ConfigError
from stateflow.failpoints import reach
from stateflow.record import is_topic_name
from stateflow.spark.jdbc_database import NAME_CHARACTERS_MAX, open_database, with_driver, with_text
from stateflow.spark.task_attempts import with_attempts
from stateflow.spark.to_topic import passed_over, query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA = re.compile(r"""(?:(?:[^."`]+|"[^"]*"|`[^`]*`)\.)*""")
"""What stands before a table's own name, the dot included; empty where the name is alone."""


@dataclass(frozen=True, slots=True)
class JdbcWriter:
    """Writes a DataFrame's rows to a table; ``foreachBatch`` takes it as it is.

    ``options`` are those of Spark's JDBC sink, ``url`` first; ``name`` is the query's for good, as its checkpoint is.
    The target is made by the first micro-batch if it is not there; columns are matched by name, whatever their case.
    With ``keys`` the rows that have the same values there are replaced: a table of the newest rows, if no key is twice
    in a micro-batch. Where two drivers of a query run, one of them fails. A static DataFrame is written by one call, as
    micro-batch 0; the next one under the same name is number 1.
    """

    options: Mapping[str, str] = field(repr=False)
    table: str
    name: str
    keys: Sequence[str] = ()

    def __call__(self, frame: DataFrame, batch: int) -> Any:  # an int; the type of foreachBatch wants None
        """Write one micro-batch unless it is there; returns the number of rows written.

        A static DataFrame of whose number one is there is passed over with a warning. Raises
        ``ConfigError``, ``StillRunning`` where another driver writes as ``name``, and what the database says.
        """
        self.check(frame)
        query = query_of(frame)
        with open_database(frame.sparkSession, self.options) as database:
            database.make_notes()
            staging = staging_table(self.table)
            if not database.claim(self.name, query, batch, staging):
                passed_over(query, batch, self.name)
                return 0
            reach("jdbc.after_claim")
            self._write(with_attempts(frame), staging)
            reach("jdbc.after_staging")
            if not database.has(self.table):
                self._write(frame.limit(0), self.table)  # which makes it
            written = database.take_over(staging, self.table, self.keys)
            database.note(self.name, batch + 1, staging)
            reach("jdbc.before_commit")
            database.commit()
            reach("jdbc.after_commit")
            database.drop(staging)
        return written

    def check(self, frame: DataFrame) -> None:
        """Raise ``ConfigError`` for what cannot be written."""
        keys: object = self.keys
        if "url" not in self.options:
            self._refuse(
                "no database is named", "give the option `url`, as in jdbc:postgresql://host/database."
            )
        if not is_topic_name(self.name) or len(self.name) > NAME_CHARACTERS_MAX:
            action = f"take letters, digits, dots, - and _ (at most {NAME_CHARACTERS_MAX}) for it."
            self._refuse(f"the name {self.name!r} cannot be kept", action)
        if isinstance(keys, str):
            self._refuse(f"keys={keys!r} is one text", f"write keys=[{keys!r}].")
        columns = {name.lower() for name in frame.columns}
        wrong = [name for name in self.keys if name.lower() not in columns]
        if wrong:
            self._refuse(f"no column is called {wrong[0]!r}", f"take keys of {', '.join(frame.columns)}.")

    def _refuse(self, why: str, action: str) -> NoReturn:
        raise ConfigError(f"the rows cannot be written to {self.table!r}: {why}.", action=action)

    def _write(self, frame: DataFrame, table: str) -> None:
        texts = [name for name, kind in frame.dtypes if kind == "string"]
        options = with_driver(with_text(self.options, texts))
        frame.write.format("jdbc").options(**options).option("dbtable", table).mode("append").save()


def staging_table(table: str) -> str:
    """A new name for a table beside another one, in the same schema."""
    schema = _SCHEMA.match(table)
    return f"{schema.group() if schema else ''}stateflow_staging_{secrets.token_hex(6)}"
