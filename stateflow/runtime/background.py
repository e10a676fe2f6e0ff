"""Requests to brokers that the poll thread does not wait for: one of a kind at a time, and its outcome is taken later.

Whatever a request takes, with a broker that is slow or away, the group is served and records are processed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Generic, NamedTuple, TypeVar

from stateflow.daemon_threads import DaemonThreads

T = TypeVar("T")


class Executors(NamedTuple):
    """What runs the work that a worker does beside its poll thread; threads of its own where there is none."""

    openings: Executor | None = None
    """For what opens tasks."""
    commits: Executor | None = None
    """For what writes commits."""
    requests: Executor | None = None
    """For what else brokers are asked."""


OWN_THREADS = Executors()


class BackgroundRequest(Generic[T]):
    """Requests of one kind, each made on a thread beside the one that uses this.

    ``executor`` takes the place of that thread. With one that does all at once a request is over when it is begun.
    """

    def __init__(self, name: str, executor: Executor | None = None) -> None:
        self._name = name
        self._executor = executor
        self._thread: DaemonThreads | None = None
        self._under_way: Future[T] | None = None

    @property
    def is_under_way(self) -> bool:
        """True from ``begin`` until ``take``: nothing else may be begun."""
        return self._under_way is not None

    @property
    def is_over(self) -> bool:
        """True when there is an outcome to ``take``."""
        return self._under_way is not None and self._under_way.done()

    def begin(self, request: Callable[[], T]) -> None:
        """Have it made."""
        assert self._under_way is None, "the last one is not over, or nobody has taken its outcome"
        self._under_way = (self._executor or self._own_thread()).submit(request)

    def wait(self) -> None:
        """Until the one that is under way, if any, is over: as long as the request itself may take."""
        if self._under_way is not None:
            self._under_way.exception()

    def take(self) -> T:
        """The outcome of one that is over; raises what it has raised."""
        assert self._under_way is not None, "none was begun"
        over, self._under_way = self._under_way, None
        return over.result()

    def close(self, *, waits: bool) -> None:
        """Make no more. One under way comes to its own end, or to the process's, which is waited for or not; nobody
        hears of its outcome.
        """
        if waits:
            self.wait()
        if self._thread is not None:
            self._thread.shutdown(wait=waits, cancel_futures=True)

    def _own_thread(self) -> Executor:
        self._thread = self._thread or DaemonThreads(self._name, 1)
        return self._thread
