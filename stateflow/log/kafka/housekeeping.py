"""One thread that serves the clients of writers which nobody is using.

A client library puts what it has to tell into a queue without a bound, and whoever owns the client takes it out in
calls of its own. An idle task makes none, and a busy one may be away for minutes in its application's code, while the
statistics that :mod:`stateflow.log.kafka.end_watch` needs come every 50 ms, 4 kB each: the library can neither pause
them nor be asked for them. So they are taken out here, whatever the owners do: hosts need not know of that queue.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

INTERVAL_SECONDS = 1.0
"""Pause between two rounds, in which a client gathers 20 statistics."""


class Served(Protocol):
    """What has a client to be served."""

    def serve_idle(self) -> None:
        """Take out what waits, unless the owner is within a call, which does so itself. Never blocks, never raises."""
        ...


class Housekeeping:
    """Serves what was added until it is removed or forgotten by its owner. The thread lives as long as there is any."""

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()
        self._served: weakref.WeakSet[Served] = weakref.WeakSet()
        self._is_running = False

    def add(self, served: Served) -> None:
        """From now on, serve it every interval."""
        with self._lock:
            self._served.add(served)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="kafka-housekeeping", daemon=True).start()

    @property
    def served_total(self) -> int:
        """How many there are now."""
        with self._lock:
            return len(self._served)

    def remove(self, served: Served) -> None:
        """Serve it no more."""
        with self._lock:
            self._served.discard(served)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(self._interval_seconds) and self._round():
            pass

    def _round(self) -> bool:
        """Serve everyone once; False when there is nobody left, and the thread is to end."""
        with self._lock:
            everyone = list(self._served)
            self._is_running = bool(everyone)
        for served in everyone:
            served.serve_idle()
        return bool(everyone)
