"""Jobs in processes of this machine: what Python does per record uses a core each, and needs no Spark."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from stateflow.checkpoint.recovery import end_with_parent, interrupts_held
from stateflow.log.base import Cluster
from stateflow.log.kept_readers import kept_readers
from stateflow.scale.shuffle import OnDone, ShuffleByFiles

Job = TypeVar("Job")
Result = TypeVar("Result")

_here: dict[str, Any] = {}
"""What a process of a pool keeps between its jobs. Empty in the parent."""


class Processes(ShuffleByFiles):
    """Implements ``scale.engine.Engine`` with ``lanes`` processes, kept until the scope ends.

    ``connect`` is a module-level function, or a partial of one: each process has a connection of its own.
    """

    name = "processes"

    def __init__(self, connect: Callable[[], Cluster], lanes: int) -> None:
        assert lanes > 0, "at least one lane"
        self.lanes = lanes
        context = multiprocessing.get_context("spawn")  # threads of the clients do not survive a fork
        self._pool = ProcessPoolExecutor(lanes, context, _begin, (connect,))

    def __enter__(self) -> Self:
        """Processes start with their first jobs."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the jobs under way, and end the processes."""
        self._pool.shutdown(cancel_futures=True)

    def submit(self, work: Callable[[Cluster, Job], Result], job: Job) -> Future[Result]:
        """Begin one job; implements ``scale.engine.Lanes``. Ctrl-C is the caller's to see, not the processes'."""
        with interrupts_held():  # the first jobs start the processes
            return self._pool.submit(_do, work, job)

    def run(
        self, work: Callable[[Cluster, Job], Result], jobs: Sequence[Job], on_done: OnDone | None = None
    ) -> list[Result]:
        """Results in the order of the jobs; raises the first failure, jobs not begun are dropped then."""
        futures = [self._pool.submit(_do, work, job) for job in jobs]
        if on_done is not None:
            for future in futures:
                future.add_done_callback(lambda done: _tell(done, on_done))
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


def _tell(done: Future[Any], on_done: OnDone) -> None:
    if not done.cancelled() and done.exception() is None:
        on_done(done.result())


def _begin(connect: Callable[[], Cluster]) -> None:
    end_with_parent()
    _here["cluster"] = connect()


def _do(work: Callable[[Cluster, Any], Any], job: Any) -> Any:
    with kept_readers(_here["cluster"]) as cluster:
        return work(cluster, job)
