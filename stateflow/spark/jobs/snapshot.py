"""Write the newest value per key of a store, or of any compacted topic, to Parquet.

    spark-submit snapshot.py --brokers HOST:PORT --app ID --store NAME --out DIR
    spark-submit snapshot.py --brokers HOST:PORT --topic T --key string --value json --out DIR

In a notebook, use ``stateflow.spark.table.snapshot_frame`` and go on with the DataFrame.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from stateflow.errors import ConfigError, StateflowError
from stateflow.interrupts import as_ctrl_c
from stateflow.log.base import Cluster
from stateflow.query.columns import TableSpec
from stateflow.query.read import where
from stateflow.query.snapshot import Snapshot, store_snapshot, topic_snapshot
from stateflow.scale.generation import load_catalog
from stateflow.spark.connection import Connection
from stateflow.spark.job_errors import report
from stateflow.spark.job_places import exists_already, require_spark_folder
from stateflow.spark.session import SparkSettings, spark_session
from stateflow.spark.table import snapshot_rows

CODECS = ("bytes", "string", "integer", "json", "msgpack")


def write_snapshot(
    connection: Connection, snapshot: Snapshot, out: str, *, overwrite: bool = False
) -> dict[str, Any]:
    """Write Parquet files below ``out``; returns what was written. Raises ``ConfigError`` when ``out``
    exists.
    """
    from pyspark.errors import AnalysisException

    started_at = time.monotonic()
    with spark_session(SparkSettings(app_name=f"snapshot-{snapshot.topic}")) as session:
        frame = snapshot_rows(session, connection, snapshot)
        try:
            frame.write.mode("overwrite" if overwrite else "errorifexists").parquet(out)
        except AnalysisException as error:
            if error.getCondition() != "PATH_ALREADY_EXISTS":
                raise
            raise exists_already(out) from error
        rows = session.read.parquet(out).count()
    return {
        "topic": snapshot.topic,
        "out": out,
        "rows": rows,
        "columns": [name for name, _ in snapshot.table.columns],
        "offsets": {partition: offsets.offset_next for partition, offsets in snapshot.ranges.items()},
        "seconds": round(time.monotonic() - started_at, 2),
    }


def chosen_snapshot(cluster: Cluster, options: argparse.Namespace) -> Snapshot:
    """What the command line names: a store of an application, or a topic with its codecs."""
    if options.app and options.store:
        return store_snapshot(cluster, load_catalog(cluster, options.app), options.store)
    if not options.topic:
        raise ConfigError("nothing to snapshot was named.", action="give --app and --store, or --topic.")
    table = TableSpec(
        kind="value", layout="plain", key_codec=_codec(options.key), value_codec=_codec(options.value)
    )
    return topic_snapshot(cluster, options.topic, table)


def _codec(name: str) -> dict[str, Any]:
    return {"codec": name, "bits": 64} if name == "integer" else {"codec": name}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print one JSON object; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", help="bootstrap servers, if the settings do not say them")
    parser.add_argument("--client-config", help="a properties file of the Kafka client: TLS, SASL")
    parser.add_argument("--app", help="the application's id")
    parser.add_argument("--store", help="one of its stores")
    parser.add_argument("--topic", help="any compacted topic instead")
    parser.add_argument("--key", choices=CODECS, default="bytes", help="codec of the topic's keys")
    parser.add_argument("--value", choices=CODECS, default="bytes", help="codec of the topic's values")
    parser.add_argument("--out", required=True, help="folder for the Parquet files")
    parser.add_argument("--overwrite", action="store_true", help="replace what the folder holds")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a sentence")
    options = parser.parse_args(arguments)
    try:
        with as_ctrl_c():
            require_spark_folder(options.out, "--out", is_new=not options.overwrite)
            connection = Connection(*where(options.app or "", options.brokers, options.client_config))
            cluster = connection.open()
            try:
                snapshot = chosen_snapshot(cluster, options)
            finally:
                cluster.close()
            written = write_snapshot(connection, snapshot, options.out, overwrite=options.overwrite)
    except (StateflowError, KeyboardInterrupt) as error:
        return report(error)
    print(json.dumps(written) if options.json else _sentence(written))
    return 0


def _sentence(written: dict[str, Any]) -> str:
    return (
        f"Wrote {written['rows']:,} rows of {written['topic']} to {written['out']} in {written['seconds']} s."
    )


if __name__ == "__main__":
    sys.exit(main())
