"""Threads for calls that may hang: daemons, so that a call which never returns does not keep the process from ending.

Python's own pool waits for its threads when the process ends, however it was shut down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """At most so many daemon threads, started as they are needed; one thread submits."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run it on a thread as soon as one is free."""
        future: Future[T] = Future()
        self._waiting.put((future, partial(function, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._threads_max:
            name = f"{self._name} {len(self._threads) + 1}"
            work = (self._waiting, self._idle)
            self._threads.append(threading.Thread(target=_run, args=work, name=name, daemon=True))
            self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end, each when its call is over; with ``cancel_futures`` what has not begun is cancelled."""
        with suppress(Empty):
            while cancel_futures:
                if (job := self._waiting.get_nowait()) is not None:
                    job[0].cancel()
        for _ in self._threads:
            self._waiting.put(None)
        if wait:
            for thread in self._threads:
                thread.join()


def _run(waiting: SimpleQueue[_Job | None], idle: threading.Semaphore) -> None:
    while (job := waiting.get()) is not None:
        future, call = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - for whoever waits for the result
                future.set_exception(error)
        del future, call, job  # what the call held is not kept while the thread waits for the next
        idle.release()
