"""Calls that can be parked half-way: a thread each, of which only one ever runs.

Whoever lets a thread run waits until it is parked or done, so the order of everything is decided by one scheduler and
is the same every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class _Carrier(threading.Thread):
    """A thread that makes one call after the other: to start one for each takes longer than most calls."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.goes = threading.Lock()
        self.waits = threading.Lock()
        self.goes.acquire()
        self.waits.acquire()
        self.call: Callable[[], None] | None = None

    def run(self) -> None:
        """Make each call that it is given when it may go on."""
        while True:
            self.goes.acquire()
            assert self.call is not None, "it goes on with a call"
            self.call()
            self.call = None  # nor what it holds: whole histories
            self.waits.release()


_idle: list[_Carrier] = []


def _carrier() -> _Carrier:
    if _idle:
        return _idle.pop()
    carrier = _Carrier()
    carrier.start()
    return carrier


class ParkedThread:
    """One call on a thread that has no other meanwhile."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._carrier: _Carrier | None = None
        self._raised: BaseException | None = None
        self.done = False

    def run(self) -> bool:
        """Let it go on until it parks (False) or is done (True). Raises what the call raised."""
        if self._carrier is None:
            self._carrier = _carrier()
            self._carrier.call = self._body
        carrier = self._carrier
        carrier.goes.release()
        carrier.waits.acquire()
        if self.done:
            self._carrier = None
            _idle.append(carrier)
            if self._raised is not None:
                raise self._raised
        return self.done

    @property
    def is_running_here(self) -> bool:
        """True on the thread's own thread."""
        return threading.current_thread() is self._carrier

    def park(self) -> None:
        """Called on the thread itself: give control back until ``run`` is called again."""
        carrier = self._carrier
        assert self.is_running_here, "only a thread parks itself"
        assert carrier is not None, "it runs"
        carrier.waits.release()
        carrier.goes.acquire()

    def _body(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - raised again where the thread is run
            self._raised = error
        self.done = True


class ParkedFuture(Future[T]):
    """A future that is driven: nobody else would bring it to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.thread: ParkedThread | None = None

    def cancel(self) -> bool:
        """Drive the call to its end, which is near once it was told that it is cancelled; never cancels it."""
        while self.thread is not None and not self.thread.done:
            self.thread.run()
        return False

    def result(self, timeout: float | None = None) -> T:
        """Drive the call to its end; what it returned or raised."""
        self.cancel()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Drive the call to its end; what it raised."""
        self.cancel()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Drive the call to its end: whoever waits for its word does nothing else meanwhile."""
        self.cancel()
        super().add_done_callback(fn)


class ParkedExecutor(Executor):
    """Runs what is submitted in parked threads, a little at a time, when :meth:`drive` is called."""

    def __init__(self) -> None:
        self._open: list[ParkedFuture[Any]] = []
        self.current: ParkedThread | None = None
        """The thread that runs now."""
        self._allowance = 0

    @property
    def open_total(self) -> int:
        """Calls that were submitted and are not known to be done."""
        return len(self._open)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """A future that is done after enough calls of ``drive``."""
        future: ParkedFuture[T] = ParkedFuture()
        future.thread = ParkedThread(lambda: self._complete(future, fn, args, kwargs))
        self._open.append(future)
        return future

    def drive(self, places: int) -> None:
        """Let each call go on for so many places."""
        for future in list(self._open):
            assert future.thread is not None, "set when it was submitted"
            self._allowance = places
            if not future.thread.done:
                self._run(future.thread)
        self._open = [future for future in self._open if not future.done()]

    def finish(self) -> None:
        """Let everything run to its end."""
        for future in self._open:
            future.cancel()
        self._open = []

    def reached_place(self) -> None:
        """A place was reached by the thread that runs: park it when it has had its turn."""
        if self.current is not None:
            self._allowance -= 1
            if self._allowance <= 0:
                self.current.park()

    def _run(self, thread: ParkedThread) -> None:
        before, self.current = self.current, thread
        try:
            thread.run()
        finally:
            self.current = before

    @staticmethod
    def _complete(
        future: ParkedFuture[Any], call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks the future, as a pool does
            future.set_exception(error)
