"""Calls of the client library that may never return, made on threads that nobody has to wait for.

The library's calls about transactions take a time limit, and do not always keep it: a request that meets a
coordinator's end may be answered by nobody (seen in ``send_offsets_to_transaction``, more than a minute behind a limit
of 30 s). Nothing cancels such a call. So the caller waits elsewhere, and gives the client up when the call is overdue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeVar, cast

from stateflow.errors import BrokerUnreachable

T = TypeVar("T")

_OVERDUE_SECONDS = 10.0
"""How long a call is waited for behind its own time limit."""


class CallOverdue(Exception):
    """The call has not returned in time, and may never do so: its client must not be used any more."""


class _Call:
    def __init__(self, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call
        self._result: object = None
        self._raised: BaseException | None = None
        self.is_over = threading.Event()

    def make(self) -> None:
        call, self._call = self._call, None
        assert call is not None, "a call is made once"
        try:
            self._result = call()
        except BaseException as raised:  # noqa: BLE001 - the caller is told of it
            self._raised = raised
        del call  # whoever waits may be about to end the client, which ends with the last reference
        self.is_over.set()

    def result(self) -> object:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised
        return self._result


class CallThreads:
    """Threads that wait for the next call, as many as there are calls at a time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[_Call | None]] = []

    def run(self, call: Callable[[], T], timeout_seconds: float) -> T:
        """What it returns or raises. Raises ``CallOverdue``; its thread then ends with the call, if that ends."""
        made = _Call(call)
        with self._lock:
            calls = self._idle.pop() if self._idle else None
        if calls is None:
            calls = SimpleQueue()
            threading.Thread(target=_serve, args=(calls,), name="kafka-call", daemon=True).start()
        calls.put(made)
        if not made.is_over.wait(timeout_seconds):
            calls.put(None)
            raise CallOverdue
        with self._lock:
            self._idle.append(calls)
        return cast(T, made.result())

    def close(self) -> None:
        """End the threads that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for calls in idle:
            calls.put(None)


def _serve(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.make()
        del call


class TransactionCalls:
    """One client's calls about transactions."""

    def __init__(self, threads: CallThreads, bootstrap: str) -> None:
        self._threads = threads
        self._bootstrap = bootstrap
        self.is_stuck = False
        """A call has not returned: the client may be asked nothing more, nor be waited for."""

    def check(self) -> None:
        """Raise ``BrokerUnreachable`` if a call has not returned."""
        if self.is_stuck:
            raise self.failure()

    def make(self, call: Callable[[float], object], timeout_seconds: float) -> None:
        """Make a call, which is given its time limit. Raises what it raises, and ``BrokerUnreachable`` when overdue."""
        try:
            self._threads.run(partial(call, timeout_seconds), timeout_seconds + _OVERDUE_SECONDS)
        except CallOverdue as overdue:
            self.is_stuck = True
            raise self.failure() from overdue

    def failure(self) -> BrokerUnreachable:
        """Why the client can do nothing any more."""
        return BrokerUnreachable(
            f"The Kafka client has not come back from a call about a transaction, {_OVERDUE_SECONDS:g} s after its time"
            " limit; another takes its place.",
            action=f"check that the brokers at {self._bootstrap} are running and can be reached from here.",
            bootstrap=self._bootstrap,
        )
