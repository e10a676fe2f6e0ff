"""The work of `bench latency` in a long-running Spark task, until standard input ends.

python -m stateflow.lab.spark_bench.hosted_latency '{"rate": 2000, …}' localhost:9092 /tmp/state application-id
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from stateflow.lab.bench.latency import LatencyLoad, application
from stateflow.lab.bench.latency_study import Command
from stateflow.operators.topology.topology import Topology
from stateflow.runtime.settings import worker_settings
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Pipeline
from stateflow.spark.long_running import LongRunSettings, run_long
from stateflow.spark.session import SparkSettings


def hosted_command(cores: int) -> Command:
    """Runs it on a session of so many cores, with one worker."""

    def command(load: LatencyLoad, brokers: str, app_id: str, place: Path) -> list[str]:
        told = [load.encode(), brokers, str(place), app_id, str(cores)]
        return [sys.executable, "-m", "stateflow.lab.spark_bench.hosted_latency", *told]

    return command


def graph(load: LatencyLoad, app_id: str, place: Path) -> Topology:
    """The application's graph, as executors build it."""
    return application(load, app_id, place).topology()


def main(arguments: Sequence[str]) -> None:
    """Run until standard input ends."""
    load, brokers, place, app_id = LatencyLoad.decode(arguments[0]), *arguments[1:4]
    stopping = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()
    build = partial(graph, load, app_id, Path(place))
    pipeline = Pipeline(topology=build(), guarantee="exactly-once", partitions=load.partitions, load=build)
    settings = LongRunSettings(workers=1, spark=SparkSettings(cores=int(arguments[4])))
    worker = worker_settings(application(load, app_id, Path(place)).options)
    run_long(pipeline, Connection(brokers), worker, settings=settings, stopping=stopping)


if __name__ == "__main__":
    main(sys.argv[1:])
