"""Repartition an application's state on Spark: every store and all unread records, exactly once, audited.

    spark-submit repartition.py --app ID --partitions M --brokers HOST:PORT [--client-config FILE]

The same as ``stateflow scale start --engine spark``. No worker may be running. Killed at any point, it is
started again with the same M and resumes; ``stateflow scale abort`` undoes it. Changelogs are read in parts by one
Spark task each and written in slices by one each (``stateflow.scale.state_move``), whatever the numbers of partitions:
give the job as many cores as it shall use.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

import msgspec

from stateflow.clock import SystemClock
from stateflow.errors import StateflowError
from stateflow.interrupts import as_ctrl_c
from stateflow.query.read import where
from stateflow.scale.generation import await_stopped, check_change, load_catalog, preparing, target_routing
from stateflow.scale.past_runs import PastRuns
from stateflow.scale.progress import Progress
from stateflow.scale.start import Outcome, start
from stateflow.spark.connection import Connection
from stateflow.spark.engine import SparkEngine
from stateflow.spark.job_errors import report
from stateflow.spark.session import SparkSettings, spark_session


def repartition(app: str, partitions: int, connection: Connection) -> Outcome:
    """Run the job in a Spark session; progress goes to stderr."""
    cluster = connection.open()
    try:
        catalog = load_catalog(cluster, app)
        routing = target_routing(catalog, partitions=partitions)
        check_change(catalog, routing)
        await_stopped(cluster, app)  # before Spark takes its seconds to start
        past, resumes, started_at = PastRuns(), preparing(catalog) is not None, time.monotonic()
        with spark_session(SparkSettings(app_name=f"repartition-{app}", is_python=True)) as session:
            engine = SparkEngine(session, connection)
            outcome = start(
                cluster,
                app,
                routing,
                engine,
                SystemClock(),
                on_progress=print_progress,
                past=past.read(),
                seconds_starting=time.monotonic() - started_at,
            )
        if not resumes:  # part of the work of one that was resumed was done before
            past.add(outcome.run(SystemClock()))
        return outcome
    finally:
        cluster.close()


def print_progress(progress: Progress) -> None:
    """One line on stderr."""
    eta = f", {progress.eta_seconds:.0f} s left" if progress.eta_seconds is not None else ""
    share = progress.slots_done / progress.slots_total if progress.slots_total else 1.0
    read, written = progress.records_read_total, progress.records_written_total
    text = f"{progress.step} {share:.0%}: {read:,} records read, {written:,} written, {progress.rate:,.0f}/s{eta}"
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print one JSON object; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--app", required=True, help="the application's id")
    parser.add_argument("--partitions", required=True, type=int, help="the new number of partitions")
    parser.add_argument("--brokers", help="bootstrap servers, if the settings do not say them")
    parser.add_argument("--client-config", help="a properties file of the Kafka client: TLS, SASL")
    options = parser.parse_args(arguments)
    try:
        with as_ctrl_c():
            connection = Connection(*where(options.app, options.brokers, options.client_config))
            outcome = repartition(options.app, options.partitions, connection)
    except (StateflowError, KeyboardInterrupt) as error:
        return report(error)
    print(json.dumps({name: msgspec.to_builtins(value) for name, value in asdict(outcome).items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
