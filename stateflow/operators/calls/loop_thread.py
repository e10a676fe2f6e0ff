"""A thread with an event loop, for calls to outside services.

A daemon: a call that hangs for ever must not keep a worker from ending.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress

_LOG = logging.getLogger(__name__)
_JOIN_SECONDS = 5.0


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
