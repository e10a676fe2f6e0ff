"""SIGINT and SIGTERM as a request to stop, heard at once whatever the main thread waits for."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stateflow.errors import Interrupted

_LOG = logging.getLogger(__name__)
_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[threading.Event]:
    """SIGINT and SIGTERM call ``stop`` inside this scope and set the event; what handled them before is put back.

    ``stop`` is called on a thread of its own: a handler in Python only runs between two steps of the main thread, and
    a call into the Kafka client that waits for brokers (``commit_transaction``) is one step of up to a minute.
    """
    signalled = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield signalled  # only the main thread may set handlers; whoever runs us elsewhere stops us by other means
        return

    def heard(number: int) -> None:
        _LOG.info("%s: committing and closing.", signal.Signals(number).name)
        signalled.set()
        stop()

    with _listening(heard):
        before = {number: signal.signal(number, _left_to_the_listener) for number in _NUMBERS}
        try:
            yield signalled
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def put_off_signals() -> Iterator[None]:
    """SIGINT and SIGTERM that come in this scope are delivered at its end: for what must not be left half done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []
    before = {
        number: signal.signal(number, lambda heard_now, _: heard.append(heard_now)) for number in _NUMBERS
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if heard:
            signal.raise_signal(heard[0])


def check_not_interrupted(signalled: threading.Event) -> None:
    """Raise ``Interrupted`` when a signal ended what should have gone on to the end of the input."""
    if signalled.is_set():
        raise Interrupted(
            "Stopped before all input was processed; everything that was done is committed.",
            action="start it again to go on.",
        )


def _left_to_the_listener(_number: int, _frame: object) -> None:
    """What matters has been done by then: Python writes each signal to the wake-up descriptor when it comes."""


@contextmanager
def _listening(heard: Callable[[int], None]) -> Iterator[None]:
    """Call ``heard`` for every signal of ours that Python writes to its wake-up descriptor in this scope."""
    ours, pythons = socket.socketpair()

    def listen() -> None:
        while told := ours.recv(64):
            for number in told:
                if number in _NUMBERS:
                    heard(number)

    listener = threading.Thread(target=listen, name="signals", daemon=True)
    with ours, pythons:
        pythons.setblocking(False)  # Python asks for it: its own handler must not wait
        before = signal.set_wakeup_fd(pythons.fileno(), warn_on_full_buffer=False)
        listener.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            pythons.shutdown(socket.SHUT_RDWR)
            listener.join()
