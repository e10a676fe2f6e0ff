"""Threads for calls to outside services: one with an event loop, and those for functions that block.

All are daemons: a call that hangs for ever must not keep a worker from ending. Python's own pool waits for its threads
when the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_LOG = logging.getLogger(__name__)
_JOIN_SECONDS = 5.0

T = TypeVar("T")
_Job = tuple[Future[Any], Callable[[], Any]]


class LoopThread:
    """An event loop that runs in a thread until it is stopped."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(self.loop,), name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cancel what runs on the loop and let the thread end; waits for nothing, and may be called again."""
        with suppress(RuntimeError):  # it is closed already
            self.loop.call_soon_threadsafe(self.loop.stop)

    def close(self) -> None:
        """The same, and wait for the thread, but not for ever."""
        self.stop()
        self._thread.join(_JOIN_SECONDS)
        if self._thread.is_alive():
            _LOG.warning("The thread %r does not end: a call blocks it.", self._thread.name)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_all(loop))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    others = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class CallThreads(Executor):
    """At most so many daemon threads, started as they are needed; one thread submits."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._threads = 0
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run it on a thread as soon as one is free."""
        future: Future[T] = Future()
        self._waiting.put((future, partial(function, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and self._threads < self._threads_max:
            self._threads += 1
            name = f"{self._name} {self._threads}"
            work = (self._waiting, self._idle)
            threading.Thread(target=_run_calls, args=work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Let the threads end, each when its call is over; what has not begun is cancelled. Waits for nothing."""
        assert not wait, "a call may hang"
        assert cancel_futures, "nobody waits for the results"
        while True:
            try:
                job = self._waiting.get_nowait()
            except Empty:
                break
            if job is not None:
                job[0].cancel()
        for _ in range(self._threads):
            self._waiting.put(None)


def _run_calls(waiting: SimpleQueue[_Job | None], idle: threading.Semaphore) -> None:
    while (job := waiting.get()) is not None:
        future, call = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - for whoever waits for the result
                future.set_exception(error)
        del future, call, job  # what the call held is not kept while the thread waits for the next
        idle.release()
