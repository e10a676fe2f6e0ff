"""A worker process that is asked to stop while no broker answers ends at once, as if it had been killed.

It could only wait for time-outs, one after the other: nothing can be committed, and the group cannot be left. To be
killed is safe at every moment: what was not committed is read again, and the local store is what the last commit made.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks while a stop takes its time; each may take some seconds itself."""


class OutageExit:
    """Looks from ``begin`` to ``close`` whether a broker answers, and ends the process when none does.

    ``is_reachable`` is called on a thread of its own. ``end`` must not return.
    """

    def __init__(
        self, is_reachable: Callable[[], bool], exit_code: int, end: Callable[[int], object] = os._exit
    ) -> None:
        self._is_reachable = is_reachable
        self._exit_code = exit_code
        self._end = end
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """The process was asked to stop; to be asked again changes nothing. May be called by a signal's handler."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="outage-exit", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """It has stopped in order; on return it is not ended from here any more."""
        with self._lock:
            self._closed.set()

    def _watch(self) -> None:
        while not self._closed.is_set():
            if not self._is_reachable():
                self._leave()
            self._closed.wait(LOOK_SECONDS)

    def _leave(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            _LOG.warning(
                "No broker answers: what is not committed is left to the next start, which reads it again."
            )
            for handler in logging.getLogger().handlers:
                handler.flush()
            self._end(self._exit_code)
