"""Runs the jobs of a repartition as Spark tasks, one per job.

A failure that another attempt may cure is left to Spark, which starts the task again, on another executor if
need be. One that no attempt can cure comes back as data and is raised here with its own type, not as a Java
stack trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from stateflow import errors
from stateflow.errors import (
    BrokerUnreachable,
    JobFailed,
    OffsetsPending,
    ProducerFenced,
    StateflowError,
    StateLocked,
    TransactionAborted,
)
from stateflow.log.base import Cluster
from stateflow.spark.connection import Connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = TypeVar("Job")
Result = TypeVar("Result")

WORTH_ANOTHER_ATTEMPT = (BrokerUnreachable, OffsetsPending, ProducerFenced, StateLocked, TransactionAborted)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way from an executor."""

    kind: str
    message: str
    action: str
    fields: dict[str, object] = field(default_factory=dict)
    """Those that travel: text and numbers."""

    @classmethod
    def of(cls, error: StateflowError) -> Failure:
        """An error as it travels."""
        fields: dict[str, object] = {
            name: value for name, value in error.fields.items() if isinstance(value, str | int | float)
        }
        return cls(type(error).__name__, error.message, error.action, fields)

    def to_error(self) -> StateflowError:
        """The error again, with its class."""
        kind = getattr(errors, self.kind, StateflowError)
        return cast(StateflowError, kind(self.message, action=self.action, **self.fields))


@dataclass(frozen=True, slots=True)
class JobTask:
    """What an executor runs: connect, do each job of this partition, disconnect."""

    connection: Connection
    work: Callable[[Cluster, Any], Any]

    def __call__(self, jobs: Iterable[Any]) -> Iterator[Any]:
        """Results of the jobs in order, or the failure that ended them."""
        cluster = self.connection.open()
        try:
            for job in jobs:
                yield self.work(cluster, job)
        except WORTH_ANOTHER_ATTEMPT:
            raise
        except StateflowError as error:
            yield Failure.of(error)
        finally:
            cluster.close()


class SparkEngine:
    """Implements ``scale.engine.Engine`` on a Spark session. Jobs and results travel; clusters never do."""

    name = "spark"

    def __init__(self, session: SparkSession, connection: Connection) -> None:
        self._session = session
        self._connection = connection

    @property
    def lanes(self) -> int:
        """Tasks that the session runs at the same time."""
        return int(self._session.sparkContext.defaultParallelism)

    def run(self, work: Callable[[Cluster, Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """One Spark task per job. Raises the first failure, or ``JobFailed`` when a task ran out of
        attempts.
        """
        from py4j.protocol import Py4JJavaError

        if not jobs:
            return []
        spread = self._session.sparkContext.parallelize(list(jobs), len(jobs))
        try:
            results = spread.mapPartitions(JobTask(self._connection, work)).collect()
        except Py4JJavaError as error:
            raise JobFailed(
                f"a Spark task failed in all its attempts: {last_line(str(error.java_exception))}",
                action="cure the cause and start the job again: it resumes where it stopped.",
            ) from error
        for result in results:
            if isinstance(result, Failure):
                raise result.to_error()
        return cast("list[Result]", results)


def last_line(text: str) -> str:
    """The line of a task's traceback that names the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if "Error" in line and not line.startswith(("at ", "File "))]
    return named[-1] if named else (lines[0] if lines else "no reason given")
