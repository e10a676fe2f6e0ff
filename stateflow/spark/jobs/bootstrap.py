"""Make a savepoint of tables on Spark, from which an application starts: state written by a batch job.

    spark-submit bootstrap.py shop/app.py:app --table totals=totals.parquet --to s3://bucket/savepoints \\
        --sources latest [--name NAME] [--partitions N] [--brokers HOST:PORT] [--client-config FILE] [--dry-run]

Each table has the columns that ``spark.read.format("stateflow")`` shows of the store; every row is checked against the
types that the application declares. Nothing is written to Kafka. The application starts from it with

    stateflow savepoint restore shop/app.py:app NAME --from s3://bucket/savepoints

Killed at any point, it is started again: without the manifest, which comes last, there is no savepoint. Change
``tables`` to compute the rows here; --offsets FILE says in JSON ({topic: {partition: offset}}) where sources go on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from stateflow.bootstrap.plan import Sources
from stateflow.bootstrap.write import WrittenState, write_connected
from stateflow.errors import ConfigError, StateflowError
from stateflow.interrupts import as_ctrl_c
from stateflow.spark.bootstrap import SparkWriter
from stateflow.spark.job_errors import report
from stateflow.spark.job_places import require_own_folder
from stateflow.spark.session import SparkSettings, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tables(session: SparkSession, options: argparse.Namespace) -> dict[str, DataFrame]:
    """By store, the rows; this is the place to read them otherwise, or to compute them."""
    found = {}
    for table in options.table:
        store, named, path = table.partition("=")
        if not named:
            raise ConfigError(f"--table {table!r} names no file.", action="write --table STORE=PATH.")
        found[store] = session.read.format(options.format).load(path)
    return found


def sources_of(options: argparse.Namespace) -> Sources:
    """Where the application begins to read."""
    if options.offsets is None:
        wanted: Sources = options.sources
        return wanted
    try:
        said = json.loads(options.offsets.read_text())
        return {topic: {int(at): int(to) for at, to in offsets.items()} for topic, offsets in said.items()}
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{options.offsets} cannot be read ({error}).", action='write {"topic": {"0": 123, …}, …}.'
        ) from error


def run(options: argparse.Namespace) -> WrittenState:
    """Run the job in a Spark session."""
    with spark_session(SparkSettings(app_name="bootstrap")) as session:
        return write_connected(
            SparkWriter.of(options.app),
            options.app,
            tables(session, options),
            to=options.to,
            sources=sources_of(options),
            name=options.name,
            partitions=options.partitions,
            brokers=options.brokers,
            client_file=options.client_config,
            dry_run=options.dry_run,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print one JSON object; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("app", help="module:attribute or file.py:attribute")
    parser.add_argument("--table", action="append", required=True, help="STORE=PATH; may be repeated")
    parser.add_argument("--format", default="parquet", help="of the tables: parquet, orc, json, …")
    parser.add_argument("--to", required=True, help="where the savepoint is kept")
    parser.add_argument("--name", default="bootstrap", help="the savepoint's name")
    where_from = parser.add_mutually_exclusive_group(required=True)
    where_from.add_argument("--sources", choices=["earliest", "latest"], help="where sources are read from")
    where_from.add_argument("--offsets", type=Path, help="a JSON file that says it for each partition")
    parser.add_argument("--partitions", type=int, help="of the stages behind re-key steps")
    parser.add_argument("--brokers", help="bootstrap servers, if the settings do not say them")
    parser.add_argument("--client-config", type=Path, help="a properties file of the Kafka client: TLS, SASL")
    parser.add_argument("--dry-run", action="store_true", help="check and count every row, write nothing")
    options = parser.parse_args(arguments)
    try:
        with as_ctrl_c():
            require_own_folder(options.to, "--to")
            done = run(options)
    except (StateflowError, KeyboardInterrupt) as error:
        return report(error)
    print(json.dumps(asdict(done)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
