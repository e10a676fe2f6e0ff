"""When an application has drained: its input is processed in all stages, and no worker has anything left to do.

Offsets are seen from outside. That nothing is due (timers, watermarks that the stages behind were not told of) each
worker says for its own tasks, and it takes that back *before* it processes or commits anything. So if all workers are
quiet, the log is at its end everywhere, and afterwards no worker has said anything else, then nothing happened in
between and nothing will but by new input or by the clock (Mattern's termination detection with two looks, 1987).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from stateflow.errors import StateflowError
from stateflow.log.base import Cluster
from stateflow.runtime.progress.lag import InputLag, application_lag
from stateflow.runtime.progress.slowest_inputs import slowest_inputs
from stateflow.runtime.task.wiring import Wiring

_LOG = logging.getLogger(__name__)

_CHECK_SECONDS = 0.5
_JOIN_SECONDS = 1.0
"""A look at brokers that do not answer takes longer, and nobody waits for it any more."""
_CHECKS_PER_WORD = 20
_SHOWN_MAX = 5
_BUSY = b"busy\n"


@dataclass(frozen=True, slots=True)
class Quiet:
    """What a worker said last. Equal ones mean that it has done nothing in between."""

    worker: str
    said_total: int
    tasks: int | None
    """How many tasks it runs, all with nothing to do; None while it has something to do."""


class QuietListener(Protocol):
    """Told by a worker's poll thread whenever it changes."""

    def tell(self, tasks: int | None) -> None:
        """Quiet with so many tasks, or None: about to do something."""
        ...


class QuietReport:
    """Tells a listener, if there is one, of changes alone."""

    def __init__(self) -> None:
        self.listener: QuietListener | None = None
        self._said: int | None = None

    def say(self, tasks: int | None) -> None:
        """Quiet with so many tasks, or None: about to do something."""
        if self.listener is not None and tasks != self._said:
            self._said = tasks
            self.listener.tell(tasks)


class QuietHere:
    """For a worker of this process."""

    def __init__(self) -> None:
        self._last = Quiet("", 0, None)

    def tell(self, tasks: int | None) -> None:
        """Remember it."""
        self._last = Quiet("", self._last.said_total + 1, tasks)

    def last(self) -> list[Quiet]:
        """The one worker's last word; from any thread."""
        return [self._last]


class QuietPipe:
    """In a child process: tells the supervisor through a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def tell(self, tasks: int | None) -> None:
        """Write a line, whole or not at all. A supervisor that is gone hears nothing: its workers stop anyway."""
        try:
            os.write(self._descriptor, _BUSY if tasks is None else b"%d\n" % tasks)
        except BrokenPipeError:
            _LOG.info("The supervisor is gone.")


class QuietReader:
    """In the supervisor: the other end of a child's ``QuietPipe``. ``said_total`` tells successors apart."""

    def __init__(self, worker: str, said_total: int = 0) -> None:
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)
        self._rest = b""
        self._last = Quiet(worker, said_total, None)

    def last(self) -> Quiet:
        """The child's last word; all that it has written before this call is counted."""
        while chunk := self._available():
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                tasks = None if line == _BUSY.strip() else int(line)
                self._last = Quiet(self._last.worker, self._last.said_total + 1, tasks)
        return self._last

    def close_writing(self) -> None:
        """The child has its end: ours is not needed."""
        os.close(self.write)

    def close(self) -> None:
        """The child is gone."""
        os.close(self._read)

    def _available(self) -> bytes:
        try:
            return os.read(self._read, 65_536)
        except BlockingIOError:
            return b""


class Drain:
    """Looks whether an application has drained. ``workers`` gives the last word of each that is asked."""

    def __init__(
        self, cluster: Cluster, wiring: Wiring, workers: Callable[[], Sequence[Quiet]], *, are_all: bool
    ) -> None:
        self._cluster = cluster
        self._wiring = wiring
        self._workers = workers
        self._are_all = are_all
        self._tasks_total = len(wiring.tasks())
        self._looks = 0

    def is_over(self) -> bool:
        """One look; once in a while it says what is waited for."""
        before = self._workers()
        lags = [lag for lag in application_lag(self._cluster, self._wiring.catalog) if lag.slots]
        is_over = not lags and self._are_quiet(before) and self._workers() == before
        self._looks += 1
        if not is_over and self._looks % _CHECKS_PER_WORD == 0:
            _LOG.warning("Not drained yet: %s.", "; ".join(self._awaited(lags, before)))
        return is_over

    def _are_quiet(self, workers: Sequence[Quiet]) -> bool:
        """True when every task was looked at by one of them. Others, on their own, answer for theirs.

        Who joins such others waits for a task of its own, but not for ever: there may be none left for it.
        """
        tasks = [worker.tasks for worker in workers]
        if None in tasks:
            return False
        spare = self._looks >= _CHECKS_PER_WORD
        needed = self._tasks_total if self._are_all or self._is_alone() else 0 if spare else 1
        return sum(number for number in tasks if number is not None) >= needed

    def _is_alone(self) -> bool:
        return len(self._cluster.group_members(self._wiring.topology.app)) <= 1

    def _awaited(self, lags: Sequence[InputLag], workers: Sequence[Quiet]) -> Iterator[str]:
        furthest = sorted(lags, key=lambda lag: -lag.slots)[:_SHOWN_MAX]
        for lag in furthest:
            yield f"{lag.task} is {lag.slots} offsets behind in {lag.source}"
        if len(lags) > len(furthest):
            yield f"and {len(lags) - len(furthest)} more inputs"
        if not lags:
            busy = [worker.worker or "this worker" for worker in workers if worker.tasks is None]
            yield f"all input is read, {', '.join(busy) or 'no worker'} has timers or watermarks to send"
        try:
            waiting = slowest_inputs(self._cluster, self._wiring.catalog)
        except StateflowError as error:  # it is only to be told: the drain itself may go on
            yield f"what holds event time back cannot be seen ({error})"
            return
        yield from (each.sentence for each in waiting[:_SHOWN_MAX])
        if len(waiting) > _SHOWN_MAX:
            yield f"so do {len(waiting) - _SHOWN_MAX} more tasks"


@contextmanager
def watching_drain(drain: Drain, stop: Callable[[], None]) -> Iterator[None]:
    """A thread that calls ``stop`` once the application has drained.

    An outage of the broker is waited for, as workers do; any error that does not pass and keeps us from telling the
    end stops them and is raised when the scope is left.
    """
    ended = threading.Event()
    failures: list[StateflowError] = []

    def watch() -> None:
        while not ended.wait(_CHECK_SECONDS):
            try:
                drained = drain.is_over()
            except StateflowError as error:
                if error.is_retriable:
                    _LOG.warning("Cannot see how far the input is processed: %s", error)
                    continue
                failures.append(error)
                drained = True
            if drained:
                stop()
                return

    thread = threading.Thread(target=watch, name="drain-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_SECONDS)
    if failures:
        raise failures[0]
