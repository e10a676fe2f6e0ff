"""Write the change feed of a store to files, as long as it runs or up to now.

    spark-submit change_feed.py --app ID --store NAME --brokers HOST:PORT --out DIR --checkpoint-dir DIR
        [--client-config FILE] [--starting earliest|latest] [--until-now] [--format parquet] [--records-max N]

A row for each key that a commit changed: the key's columns, the new value or ``deleted``, when it was appended, and
``generation``, ``partition`` and ``offset``, which name the change. Read by Spark, the files have each
change once (the folder's ``_spark_metadata`` says which files count). Killed at any point, it is started again with
the same folders. Change ``written`` to write elsewhere; docs/spark.md says what holds for which sink.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stateflow.errors import StateflowError
from stateflow.interrupts import as_ctrl_c
from stateflow.query.feed import Feed, checked_start
from stateflow.query.read import where
from stateflow.runtime.process.signals import stopped_by_signals
from stateflow.spark.connection import Connection
from stateflow.spark.job_errors import report
from stateflow.spark.job_places import require_spark_folder
from stateflow.spark.session import SparkSettings, spark_session
from stateflow.spark.table import change_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def written(changes: DataFrame, options: argparse.Namespace) -> StreamingQuery:
    """The query that writes the changes; this is the place to join, filter, or name another sink."""
    writer = changes.writeStream.format(options.format).option("checkpointLocation", options.checkpoint_dir)
    writer = (
        writer.trigger(availableNow=True) if options.until_now else writer.trigger(processingTime="1 second")
    )
    return writer.start(options.out)


def run(session: SparkSession, connection: Connection, options: argparse.Namespace) -> dict[str, Any]:
    """Run the query until it is stopped or, with --until-now, has read what there was at its start."""
    changes = change_frame(
        session,
        connection,
        options.app,
        options.store,
        starting=checked_start(options.starting),
        records_max=options.records_max,
    )
    query = written(changes, options)
    with stopped_by_signals(query.stop):
        query.awaitTermination()
    last = query.lastProgress
    return {"app": options.app, "store": options.store, "out": options.out, "batch": last and last["batchId"]}


def would_run(connection: Connection, options: argparse.Namespace) -> dict[str, Any]:
    """What would be read, from where to where, if it began now; nothing is written."""
    cluster = connection.open()
    try:
        feed = Feed(cluster, options.app, options.store)
        begin, end = feed.first(checked_start(options.starting)), feed.latest()
        return {
            "columns": feed.table().columns,
            "from": begin.to_fields(),
            "until": end.to_fields(),
            "dry_run": True,
        }
    finally:
        cluster.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print one JSON object; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--app", required=True, help="the application's id")
    parser.add_argument("--store", required=True, help="the name of one of its stores")
    parser.add_argument("--brokers", help="bootstrap servers, if the settings do not say them")
    parser.add_argument("--client-config", help="a properties file of the Kafka client: TLS, SASL")
    parser.add_argument("--out", required=True, help="the folder to write")
    parser.add_argument("--checkpoint-dir", required=True, help="where the query keeps how far it has come")
    parser.add_argument(
        "--format", default="parquet", help="parquet, json, orc, or another that is installed"
    )
    parser.add_argument("--starting", default="earliest", help="earliest or latest, for a query that begins")
    parser.add_argument("--until-now", action="store_true", help="end with what there is at the start")
    parser.add_argument("--records-max", type=int, help="records of a micro-batch, about, at most")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be read")
    options = parser.parse_args(arguments)
    try:
        with as_ctrl_c():
            require_spark_folder(options.out, "--out")
            require_spark_folder(options.checkpoint_dir, "--checkpoint-dir")
            connection = Connection(*where(options.app, options.brokers, options.client_config))
            if options.dry_run:
                done = would_run(connection, options)
            else:
                with spark_session(SparkSettings(app_name=f"changes-{options.app}")) as session:
                    done = run(session, connection, options)
    except (StateflowError, KeyboardInterrupt) as error:
        return report(error)
    print(json.dumps(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
