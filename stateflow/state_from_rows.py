"""``write_state``: rows of whatever library become a savepoint, written here or by Spark.

It stands above both ways of writing them, so that ``stateflow.bootstrap`` knows nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stateflow.app import App
from stateflow.bootstrap.plan import Sources
from stateflow.bootstrap.write import Rows, TablesWriter, WrittenState, write_connected, written_here
from stateflow.errors import ConfigError


def write_state(
    app: App | str,
    tables: Mapping[str, Rows],
    *,
    to: str,
    sources: Sources,
    name: str = "bootstrap",
    partitions: int | None = None,
    brokers: str | None = None,
    client_file: str | Path | None = None,
    dry_run: bool = False,
) -> WrittenState:
    """Make a savepoint of rows, from which an application starts; the counterpart of ``read_state``.

    ``app`` is the application, or ``module:attribute`` or ``file.py:attribute``, which Spark DataFrames need, since
    executors load it. ``tables`` has the rows of each store, with the columns that ``read_state`` shows of it:
    times are timestamps, values without a simple type JSON text or plain data. Stores that are not named begin empty.
    ``to`` is the place of the savepoint: a directory, ``s3://…``, ``gs://…``, ``hdfs://…``. ``sources`` says where the
    application begins to read its source topics, ``earliest``, ``latest`` or ``{topic: {partition: offset_next}}``:
    exactly-once across the two worlds is right if the rows are of exactly the records before. ``partitions`` is the
    number of tasks behind re-key steps. With ``dry_run`` every row is checked and counted, and nothing written.

    Raises ``EncodeError`` for the first row that does not fit what the application declares, ``ConfigError`` for
    columns, stores, or two rows of one key, ``TopicMissing`` where source or output topics are missing.
    """
    return write_connected(
        _writer_for(app, tables),
        app,
        tables,
        to=to,
        sources=sources,
        name=name,
        partitions=partitions,
        brokers=brokers,
        client_file=client_file,
        dry_run=dry_run,
    )


def _writer_for(app: App | str, tables: Mapping[str, Rows]) -> TablesWriter:
    of_spark = [name for name, rows in tables.items() if type(rows).__module__.startswith("pyspark.")]
    if not of_spark:
        return written_here
    if len(of_spark) < len(tables) or not isinstance(app, str):
        raise ConfigError(
            "rows of Spark and of this process are mixed, or executors cannot tell which application is meant.",
            action="give all tables as Spark DataFrames, and the application as module:attribute or file.py:attribute.",
        )
    from stateflow.spark.bootstrap import SparkWriter  # brings pyspark, which the caller has

    return SparkWriter.of(app)
