"""Who runs the jobs of a repartition: this process, or a cluster of machines that implements the same
protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from stateflow.log.base import Cluster

Job = TypeVar("Job")
Result = TypeVar("Result")


class Engine(Protocol):
    """Runs one function over many jobs. The functions resume by themselves, so an engine may simply run one
    again.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def lanes(self) -> int:
        """Jobs that it runs at the same time."""
        ...

    def run(self, work: Callable[[Cluster, Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """Results in the order of the jobs; raises the first failure. ``work`` is a module-level function."""
        ...


class InProcess:
    """Threads of this process: right for small state, tests and machines without Spark."""

    name = "local"

    def __init__(self, cluster: Cluster, lanes: int = 1) -> None:
        assert lanes > 0, "at least one lane"
        self._cluster = cluster
        self.lanes = lanes

    def run(self, work: Callable[[Cluster, Job], Result], jobs: Sequence[Job]) -> list[Result]:
        """Run the jobs, ``lanes`` at a time."""
        if self.lanes == 1:
            return [work(self._cluster, job) for job in jobs]
        with ThreadPoolExecutor(self.lanes, thread_name_prefix="repartition") as pool:
            return list(pool.map(lambda job: work(self._cluster, job), jobs))
