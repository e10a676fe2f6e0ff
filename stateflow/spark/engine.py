"""Runs the jobs of a repartition as Spark tasks, one per job.

A failure that another attempt may cure is left to Spark, which starts the task again, on another executor if
need be. One that no attempt can cure comes back as data and is raised here with its own type, not as a Java
stack trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from stateflow.errors import JobFailed
from stateflow.log.base import Cluster
from stateflow.scale.shuffle import Inbox, OnDone, Sending, ShuffleByFiles
from stateflow.spark.connection import Connection
from stateflow.spark.failure import Failure, last_line, result_or_failure
from stateflow.spark.kept_connection import kept_cluster
from stateflow.spark.reports import Reports, reports
from stateflow.spark.shuffle import shuffle_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = re.compile(r"local(\[.*\])?")
"""Masters whose tasks all run on this machine, as children of the driver."""

Job = TypeVar("Job")
Result = TypeVar("Result")
Sender = TypeVar("Sender")
Sent = TypeVar("Sent")


@dataclass(frozen=True, slots=True)
class JobTask:
    """What an executor runs: each job of this partition."""

    connection: Connection
    work: Callable[[Cluster, Any], Any]
    reports: Reports | None = None

    def __call__(self, jobs: Iterable[Any]) -> Iterator[Any]:
        """Results of the jobs in order, or the failure that ended them."""
        for job in jobs:
            result = result_or_failure(partial(self._result, job))
            yield result
            if isinstance(result, Failure):
                return

    def _result(self, job: Any) -> Any:
        result = self.work(kept_cluster(self.connection), job)
        if self.reports is not None:
            self.reports.add(result)
        return result


class SparkEngine(ShuffleByFiles):
    """Implements ``scale.engine.Engine`` on a Spark session. Jobs and results travel; clusters never do.

    On this machine alone (master ``local``) jobs hand on pieces by files. Elsewhere by Spark's own shuffle, which
    survives lost executors; it takes each piece through the JVM, a third of the CPU of a repartition. ``by_spark`` says
    which, if that is not to be found out.
    """

    name = "spark"

    def __init__(self, session: SparkSession, connection: Connection, by_spark: bool | None = None) -> None:
        self._session = session
        self._connection = connection
        is_local = _LOCAL.fullmatch(session.sparkContext.master or "") is not None
        self._by_spark = not is_local if by_spark is None else by_spark

    @property
    def lanes(self) -> int:
        """Tasks that the session runs at the same time."""
        return int(self._session.sparkContext.defaultParallelism)

    def run(
        self, work: Callable[[Cluster, Job], Result], jobs: Sequence[Job], on_done: OnDone | None = None
    ) -> list[Result]:
        """One Spark task per job. Raises the first failure, or ``JobFailed`` when a task ran out of
        attempts.
        """
        if not jobs:
            return []
        context = self._session.sparkContext
        task = JobTask(self._connection, work, reports(context, on_done))
        spread = context.parallelize(list(jobs), len(jobs)).mapPartitions(task)
        return collected(spread.collect)

    def shuffle(
        self,
        send: Callable[[Cluster, Sender], Sending[Sent]],
        senders: Sequence[Sender],
        receive: Callable[[Cluster, Job, Inbox], Result],
        receivers: Sequence[Job],
        on_done: OnDone | None = None,
    ) -> tuple[list[Sent], list[Result]]:
        """One Spark task per sender and per receiver, with a shuffle in between. Raises as ``run``."""
        if not senders or not receivers:
            return [], []
        if not self._by_spark:
            return super().shuffle(send, senders, receive, receivers, on_done)
        context = self._session.sparkContext
        results = collected(
            lambda: shuffle_on_spark(context, self._connection, send, senders, receive, receivers, on_done)
        )
        return results[len(receivers) :], results[: len(receivers)]


def collected(collect: Callable[[], list[Any]]) -> list[Any]:
    """What tasks returned. Raises the first failure among it, or ``JobFailed`` where Spark gave up."""
    from py4j.protocol import Py4JJavaError

    try:
        results = collect()
    except Py4JJavaError as error:
        raise JobFailed(
            f"a Spark task failed in all its attempts: {last_line(str(error.java_exception))}",
            action="cure the cause and start the job again: it resumes where it stopped.",
        ) from error
    for result in results:
        if isinstance(result, Failure):
            raise result.to_error()
    return results
