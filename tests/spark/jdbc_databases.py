"""The databases that `JdbcWriter` is tried with beside Derby, which Spark carries: H2 and HSQLDB, by locked jars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stateflow.connectors.broker.jars import JarSet, fetch, load_jar_set
from stateflow.spark.jdbc_database import open_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JDBC_JARS: JarSet = load_jar_set(Path(__file__).parent / "jdbc-databases.json")


def with_jars() -> dict[str, str]:
    """The setting by which Spark has their drivers."""
    folder = fetch(JDBC_JARS)
    return {"spark.jars": ",".join(str(folder / jar.file_name) for jar in JDBC_JARS.jars)}


def tables_of(session: SparkSession, options: dict[str, str]) -> list[str]:
    """The names of all tables that somebody made."""
    with open_database(session, options) as database:
        gateway: Any = session.sparkContext._gateway
        kinds = gateway.new_array(gateway.jvm.java.lang.String, 2)
        kinds[0], kinds[1] = "TABLE", "BASE TABLE"
        found = database.connection.getMetaData().getTables(None, None, "%", kinds)
        names = []
        while found.next():
            if not str(found.getString("TABLE_SCHEM")).startswith(("SYS", "INFORMATION_SCHEMA")):
                names.append(str(found.getString("TABLE_NAME")))
        return sorted(names)
