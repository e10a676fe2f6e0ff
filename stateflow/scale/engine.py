"""Who runs the jobs of a repartition: this process, or a cluster of machines that implements the same
protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from stateflow.log.base import Cluster
from stateflow.log.kept_readers import kept_readers
from stateflow.scale.shuffle import Inbox, OnDone, Sending, ShuffleByFiles

Job = TypeVar("Job")
Result = TypeVar("Result")
Sender = TypeVar("Sender")
Sent = TypeVar("Sent")


class Engine(Protocol):
    """Runs one function over many jobs. The functions resume by themselves, so an engine may simply run one
    again. All of them are module-level functions.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def lanes(self) -> int:
        """Jobs that it runs at the same time."""
        ...

    def run(
        self, work: Callable[[Cluster, Job], Result], jobs: Sequence[Job], on_done: OnDone | None = None
    ) -> list[Result]:
        """Results in the order of the jobs; raises the first failure."""
        ...

    def shuffle(
        self,
        send: Callable[[Cluster, Sender], Sending[Sent]],
        senders: Sequence[Sender],
        receive: Callable[[Cluster, Job, Inbox], Result],
        receivers: Sequence[Job],
        on_done: OnDone | None = None,
    ) -> tuple[list[Sent], list[Result]]:
        """Run the senders, then the receivers with what was sent to each of them (``scale.shuffle``).

        Results of both in the order of their jobs; raises the first failure. No receiver runs before all is sent.
        """
        ...


class Lanes(Protocol):
    """Runs jobs one by one as they are handed in, for whoever decides late which comes next."""

    @property
    def lanes(self) -> int:
        """Jobs that it runs at the same time: who decides late hands in no more."""
        ...

    def submit(self, work: Callable[[Cluster, Job], Result], job: Job) -> Future[Result]:
        """Begin one job, or finish it; the function is a module-level one."""
        ...


class InProcess(ShuffleByFiles):
    """Threads of this process: right for small state, tests and machines without Spark."""

    name = "local"

    def __init__(self, cluster: Cluster, lanes: int = 1) -> None:
        assert lanes > 0, "at least one lane"
        self._cluster = cluster
        self.lanes = lanes

    def submit(self, work: Callable[[Cluster, Job], Result], job: Job) -> Future[Result]:
        """Run one job, in the caller's thread, and raise what it raises; see ``Lanes``."""
        done: Future[Result] = Future()
        done.set_result(work(self._cluster, job))
        return done

    def run(
        self, work: Callable[[Cluster, Job], Result], jobs: Sequence[Job], on_done: OnDone | None = None
    ) -> list[Result]:
        """Run the jobs, ``lanes`` at a time."""

        with kept_readers(self._cluster) as cluster:

            def do(job: Job) -> Result:
                result = work(cluster, job)
                if on_done is not None:
                    on_done(result)
                return result

            if self.lanes == 1:
                return [do(job) for job in jobs]
            with ThreadPoolExecutor(self.lanes, thread_name_prefix="repartition") as pool:
                return list(pool.map(do, jobs))
