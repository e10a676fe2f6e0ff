"""Run an application on Spark, its state and changelogs those of the local runner.

    spark-submit pipeline.py shop/app.py:app [--brokers HOST:PORT] [--client-config FILE] [--workers N]

The same as ``stateflow run APP --runner spark``: workers inside long-running Spark tasks, until SIGTERM or Ctrl-C.
With --until-idle it ends when all input there is was processed, in micro-batches, as with --micro-batch. The
application's file travels with the job; modules that it imports, and stateflow itself, must be on the executors
(--py-files, --archives, or a packed environment). Executors write to the state directory, each on its own disk.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from stateflow.app import App, load
from stateflow.errors import StateflowError
from stateflow.interrupts import as_ctrl_c
from stateflow.log.client_file import BROKERS, read_properties, translated
from stateflow.output_places import require_file
from stateflow.runtime.settings import worker_settings
from stateflow.spark.connection import Connection
from stateflow.spark.job_errors import report
from stateflow.spark.job_places import require_spark_folder
from stateflow.spark.long_running import LongRunSettings, LongRunTotals, run_long
from stateflow.spark.runner import PipelineSettings, PipelineTotals, run_spark
from stateflow.spark.shipping import pipeline_of


def configured(options: argparse.Namespace) -> App:
    """The application with what the command line says."""
    app = load(options.app)
    client = {} if options.client_config is None else translated(read_properties(options.client_config))
    brokers = client.pop(BROKERS, None)
    app.configure(brokers=options.brokers or brokers, state_dir=options.state_dir, client=client or None)
    return app


def run(app: App, options: argparse.Namespace) -> LongRunTotals | PipelineTotals:
    """Run it in a Spark session until it is stopped or, with --until-idle, has read all input there is."""
    pipeline, worker = pipeline_of(options.app, app), worker_settings(app.options)
    connection = Connection(app.options.brokers, app.options.client)
    if options.until_idle or options.micro_batch or options.checkpoint_dir is not None:
        settings = PipelineSettings(
            checkpoint_dir=options.checkpoint_dir, progress_file=options.progress_file
        )
        return run_spark(pipeline, connection, worker, until_idle=options.until_idle, settings=settings)
    long = LongRunSettings(workers=options.workers, progress_file=options.progress_file)
    return run_long(pipeline, connection, worker, settings=long)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print one JSON object; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("app", help="module:attribute or file.py:attribute")
    parser.add_argument("--brokers", help="bootstrap servers, instead of the application's own setting")
    parser.add_argument("--client-config", type=Path, help="a properties file of the Kafka client: TLS, SASL")
    parser.add_argument("--state-dir", help="folder for local state on every executor")
    parser.add_argument("--workers", type=int, help="long-running tasks; by default one for each slot")
    parser.add_argument("--until-idle", action="store_true", help="end when all input was processed")
    parser.add_argument("--micro-batch", action="store_true", help="tasks that end with each micro-batch")
    parser.add_argument("--checkpoint-dir", help="micro-batches: where the query keeps its progress")
    parser.add_argument(
        "--progress-file", type=Path, help="append the driver's view of the progress as lines of JSON"
    )
    options = parser.parse_args(arguments)
    try:
        with as_ctrl_c():
            if options.progress_file is not None:
                require_file(options.progress_file, "--progress-file")
            if options.checkpoint_dir is not None:
                require_spark_folder(options.checkpoint_dir, "--checkpoint-dir")
            totals = run(configured(options), options)
    except (StateflowError, KeyboardInterrupt) as error:
        return report(error)
    print(json.dumps(dataclasses.asdict(totals)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
