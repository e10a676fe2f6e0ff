"""Calls to outside services: at most so many under way, each bounded in time and tried again with pauses.

The calls run on an event loop in a thread of their own, a blocking function in threads beside it. The task's thread
hands in questions and takes outcomes; nothing else is shared, so steps and state stay on the task's thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from stateflow.daemon_threads import DaemonThreads
from stateflow.errors import ProcessingError, TransactionAborted
from stateflow.operators.calls.call_limits import CallLimits
from stateflow.operators.calls.loop_thread import LoopThread

_LOG = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
"""How often the task's thread looks whether its host is to stop, while no outcome comes."""
_LOOKS_AFTER_STOP = 20
"""So a stop waits a second for calls under way; the epoch can be committed if they all come back."""
_CANCEL_SECONDS = 5.0


class Outcome(NamedTuple):
    """What became of one call."""

    number: int
    """Of the question, from 0."""
    answer: Any
    error: BaseException | None
    """Of the last attempt; None for an answer."""
    attempts: int


class Calls:
    """Asks a function questions, several at a time. For one thread; ``close`` ends its threads.

    The threads are started by the first question.
    """

    def __init__(self, step: str, function: Callable[[Any], Any], limits: CallLimits) -> None:
        self._step = step
        self._function = function
        self._limits = limits
        self._is_async = is_async(function)
        self._thread: LoopThread | None = None
        self._threads = DaemonThreads(f"calls of {step}", limits.concurrency)
        weakref.finalize(self, self._threads.shutdown, wait=False, cancel_futures=True)

    def ask(
        self, questions: Sequence[Any], is_stopping: Callable[[], bool]
    ) -> Generator[Sequence[Outcome], None, None]:
        """The outcome of each question, once, as they come: those that are there together.

        Close the iterator early and the calls under way are cancelled. Raises ``TransactionAborted`` when
        ``is_stopping`` has been true for a second and calls are still under way.
        """
        finished: SimpleQueue[Outcome] = SimpleQueue()
        left = len(questions)
        with self._under_way(questions, finished):
            while left:
                outcomes = self._next(finished, is_stopping)
                left -= len(outcomes)
                yield outcomes

    def close(self) -> None:
        """End the threads; calls under way are cancelled. A blocking one keeps its thread until it returns."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    @contextmanager
    def _under_way(self, questions: Sequence[Any], finished: SimpleQueue[Outcome]) -> Iterator[None]:
        """Ask within this scope. At its end no call is under way."""
        if self._thread is None:
            self._thread = LoopThread(f"loop of {self._step}")
            weakref.finalize(self, self._thread.stop)  # a task that a test drops as if it were killed
        loop, ended = self._thread.loop, threading.Event()
        tasks: list[asyncio.Task[None]] = []

        def begin() -> None:
            tasks.append(loop.create_task(self._ask_all(questions, finished)))
            tasks[0].add_done_callback(lambda _: ended.set())

        loop.call_soon_threadsafe(begin)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            if not ended.wait(_CANCEL_SECONDS):
                _LOG.warning("A call of step %r goes on although it was cancelled.", self._step)

    def _next(self, finished: SimpleQueue[Outcome], is_stopping: Callable[[], bool]) -> list[Outcome]:
        looks = 0
        while True:
            try:
                outcomes = [finished.get(timeout=_LOOK_SECONDS)]
                break
            except Empty:
                looks = looks + 1 if is_stopping() else 0
            if looks > _LOOKS_AFTER_STOP:
                raise TransactionAborted(
                    f"The worker is to stop while calls of step {self._step!r} are under way; they are cancelled.",
                    action="Nothing: what they were made for is read again by the next start.",
                )
        while not finished.empty():
            outcomes.append(finished.get())
        return outcomes

    async def _ask_all(self, questions: Sequence[Any], finished: SimpleQueue[Outcome]) -> None:
        numbered = iter(enumerate(questions))
        lanes = min(self._limits.concurrency, len(questions))
        await asyncio.gather(*(self._ask_in_turn(numbered, finished) for _ in range(lanes)))

    async def _ask_in_turn(self, numbered: Iterator[tuple[int, Any]], finished: SimpleQueue[Outcome]) -> None:
        """One of the calls that are under way at a time: takes the next question when it is done with one."""
        for number, question in numbered:
            finished.put(await self._outcome(number, question))

    async def _outcome(self, number: int, question: Any) -> Outcome:
        attempts = 0
        while True:
            attempts += 1
            try:
                return Outcome(number, await self._attempt(question), None, attempts)
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                error: Exception = ProcessingError(
                    "The call was cancelled by what it called.", action="Let it return a value or raise."
                )
            except Exception as raised:  # noqa: BLE001 - the step's policy sees to it
                error = raised
            except BaseException as raised:  # noqa: BLE001 - for the task's thread, not for this loop
                return Outcome(number, None, raised, attempts)
            if attempts > self._limits.retries:
                return Outcome(number, None, error, attempts)
            await asyncio.sleep(self._limits.pause_after(attempts))

    async def _attempt(self, question: Any) -> Any:
        timeout_seconds = self._limits.timeout_seconds
        try:
            async with asyncio.timeout(timeout_seconds) as deadline:
                return await self._call(question)
        except TimeoutError:
            if deadline.expired():
                raise TimeoutError(f"no answer within {timeout_seconds:g} s") from None
            raise

    async def _call(self, question: Any) -> Any:
        if self._is_async:
            return await self._function(question)
        call = partial(_called, self._function, question)
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        return await answer if inspect.isawaitable(answer) else answer


def is_async(function: Callable[..., Any]) -> bool:
    """True for an ``async def``, also as a method, a partial, or an object that is called as one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is asked for
    )


def _called(function: Callable[[Any], Any], question: Any) -> Any:
    try:
        return function(question)
    except StopIteration as error:  # no future takes one
        raise ProcessingError(
            "The function raised StopIteration.", action="Let it return a value."
        ) from error


def _is_cancelled() -> bool:
    """Whether it is this call that was cancelled, not something that it has waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
