"""What a driver does before tasks run, whichever way they run: see that nobody else does, prepare, be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stateflow.catalog.model import Guarantee
from stateflow.checkpoint.locations import written_down
from stateflow.clock import Clock
from stateflow.log.base import Cluster
from stateflow.operators.topology.topology import Topology
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import Wiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.scale.generation import await_stopped
from stateflow.spark.brought_files import brought_files
from stateflow.spark.graph_check import CheckedGraph
from stateflow.spark.presence import Presence, presence
from stateflow.spark.session import SparkSettings, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What to run: the graph here, and how an executor gets at it."""

    topology: Topology
    guarantee: Guarantee
    partitions: int
    load: Callable[[], Topology]
    """A module-level function, or a ``functools.partial`` of one, that builds the same graph on an
    executor.
    """
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files that ``load`` needs on executors, by their names there (``SparkFiles``)."""

    @property
    def checked(self) -> CheckedGraph:
        """What executors build the graph with: it refuses another graph than the driver's."""
        return CheckedGraph.of(self.load, self.topology)


@dataclass(frozen=True, slots=True)
class Driving:
    """A driver that may start tasks."""

    session: SparkSession
    wiring: Wiring
    """Of the start."""
    presence: Presence
    prepared_anew: Callable[[], Wiring]
    """For when sources have got more partitions. Raises what ``prepare`` raises."""


@contextmanager
def driving(
    cluster: Cluster, pipeline: Pipeline, worker: WorkerSettings, clock: Clock, spark: SparkSettings
) -> Iterator[Driving]:
    """The application checked and its topics there, a session, and the driver seen by others while the scope lasts.

    Raises ``StillRunning`` while workers or another driver of this application run, ``SetupError`` without Spark, and
    what ``prepare`` raises.
    """

    def prepared() -> Wiring:
        return prepare(
            cluster,
            pipeline.topology,
            pipeline.guarantee,
            pipeline.partitions,
            clock,
            trim_to=worker.trim_to,
        )

    app = pipeline.topology.app
    await_stopped(cluster, app)
    prepared()
    with (
        presence(cluster, app) as present,
        spark_session(spark) as session,
        brought_files(session.sparkContext, pipeline.files),
    ):
        # Again, now that nobody can begin a repartition any more without seeing us.
        yield Driving(session, prepared(), present, prepared)


def travelling(worker: WorkerSettings) -> WorkerSettings:
    """Settings that mean the same on an executor, whose working directory is another one."""
    places = [place.strip() for place in worker.savepoints.split(",") if place.strip()]
    return replace(
        worker,
        state_dir=Path(worker.state_dir).resolve(),
        images=None if worker.images is None else _anywhere(worker.images),
        savepoints=",".join(map(_anywhere, places)),
    )


def _anywhere(location: str) -> str:
    """A relative path made absolute; any other location as it is, with its credentials."""
    return written_down(location) if "://" not in location else location
