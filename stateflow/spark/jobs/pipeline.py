"""Run an application as a Structured Streaming query, its state and changelogs those of the local runner.

    spark-submit pipeline.py shop/app.py:app [--brokers HOST:PORT] [--state-dir DIR] [--until-idle]

The same as ``stateflow run APP --runner spark``. Executors must be able to load the application and to write
to the state directory, each on its own local disk.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from stateflow.app import App, load
from stateflow.errors import StateflowError
from stateflow.operators.topology import Topology
from stateflow.runtime.settings import worker_settings
from stateflow.spark.connection import Connection
from stateflow.spark.runner import Pipeline, PipelineSettings, PipelineTotals, run_spark


def topology_of(target: str) -> Topology:
    """The graph, built anew: executors call this instead of being sent the driver's objects."""
    return load(target).topology()


def run(target: str, app: App, *, until_idle: bool, settings: PipelineSettings) -> PipelineTotals:
    """Run the query in a Spark session until it is stopped or, with ``until_idle``, has read all input there
    is.
    """
    options = app.options
    pipeline = Pipeline(
        topology=app.topology(),
        guarantee=options.guarantee,
        partitions=options.partitions,
        load=functools.partial(topology_of, target),
    )
    connection = Connection(options.brokers, options.client)
    return run_spark(pipeline, connection, worker_settings(options), until_idle=until_idle, settings=settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print one JSON object; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("app", help="module:attribute or file.py:attribute")
    parser.add_argument("--brokers", help="bootstrap servers, instead of the application's own setting")
    parser.add_argument("--state-dir", help="folder for local state on every executor")
    parser.add_argument("--checkpoint-dir", type=Path, help="where the query keeps its progress")
    parser.add_argument("--until-idle", action="store_true", help="end when all input was processed")
    options = parser.parse_args(arguments)
    try:
        app = load(options.app)
        app.configure(brokers=options.brokers, state_dir=options.state_dir)
        settings = PipelineSettings(checkpoint_dir=options.checkpoint_dir)
        totals = run(options.app, app, until_idle=options.until_idle, settings=settings)
    except StateflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(dataclasses.asdict(totals)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
