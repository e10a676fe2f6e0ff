"""Rebuild an application's state from its changelogs on Spark, with all cores, as images that workers begin with.

    spark-submit recover.py --app ID --brokers HOST:PORT --images LOCATION [--client-config FILE] [--partition P ...]

For state that was lost, or before workers start on new machines. Each changelog partition is read by several Spark
tasks, each a part of its offsets (``stateflow.scale.recover``), so one large partition is no slower than many small
ones. LOCATION is a place that all executors reach: s3://bucket/prefix, hdfs://…, or a directory on a shared disk.
Workers whose setting ``images`` names it fetch the images when they open their tasks, and read only what was written
since. They may run meanwhile. Killed at any point, it is started again from its beginning; nothing on Kafka changes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from stateflow.clock import SystemClock
from stateflow.errors import StateflowError
from stateflow.interrupts import as_ctrl_c
from stateflow.query.read import where
from stateflow.scale.generation import load_catalog
from stateflow.scale.progress import Progress
from stateflow.scale.recover import Recovered, recover
from stateflow.spark.connection import Connection
from stateflow.spark.engine import SparkEngine
from stateflow.spark.job_errors import report
from stateflow.spark.job_places import require_own_folder
from stateflow.spark.session import SparkSettings, spark_session


def run(app: str, connection: Connection, images: str, partitions: Sequence[int] = ()) -> Recovered:
    """Run the job in a Spark session; progress goes to stderr."""
    cluster = connection.open()
    try:
        catalog = load_catalog(cluster, app)  # before Spark takes its seconds to start
        with spark_session(SparkSettings(app_name=f"recover-{app}", is_python=True)) as session:
            engine = SparkEngine(session, connection)
            return recover(
                cluster,
                catalog,
                engine,
                SystemClock(),
                scratch=images,
                images=images,
                partitions=partitions,
                on_progress=print_progress,
            )
    finally:
        cluster.close()


def print_progress(progress: Progress) -> None:
    """One line on stderr."""
    eta = f", {progress.eta_seconds:.0f} s left" if progress.eta_seconds is not None else ""
    share = progress.slots_done / progress.slots_total if progress.slots_total else 1.0
    read = f"{progress.records_read_total:,} records read, {progress.rate:,.0f}/s"
    print(f"{progress.step} {share:.0%}: {read}{eta}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print one JSON object; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--app", required=True, help="the application's id")
    parser.add_argument("--brokers", help="bootstrap servers, if the settings do not say them")
    parser.add_argument("--client-config", help="a properties file of the Kafka client: TLS, SASL")
    parser.add_argument("--images", required=True, help="where images are kept")
    parser.add_argument(
        "--partition", type=int, action="append", default=[], help="only this one; may be repeated"
    )
    options = parser.parse_args(arguments)
    try:
        with as_ctrl_c():
            require_own_folder(options.images, "--images")
            connection = Connection(*where(options.app, options.brokers, options.client_config))
            done = run(options.app, connection, options.images, options.partition)
    except (StateflowError, KeyboardInterrupt) as error:
        return report(error)
    print(json.dumps(asdict(done)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
