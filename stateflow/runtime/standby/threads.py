"""The two threads beside a placed worker: one speaks with the other workers, one keeps the standby copies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stateflow.runtime.standby.copies import StandbyCopies
from stateflow.runtime.standby.placing import Placing

_LOG = logging.getLogger(__name__)

_READ_SECONDS = 0.1


@contextmanager
def beside(placing: Placing, copies: StandbyCopies[Any]) -> Iterator[None]:
    """Both threads run inside this scope; at its end copies are closed and the others are told.

    What ends one of them by an error, ends the worker with its next step.
    """
    stopped = threading.Event()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as failure:  # noqa: BLE001 - raised again by the poll thread
                placing.failed(failure)

        return run

    def exchange() -> None:
        while not stopped.is_set():
            placing.turn(_READ_SECONDS)

    threads = [
        threading.Thread(target=guarded(exchange), name="placing", daemon=True),
        threading.Thread(target=guarded(lambda: copies.run(stopped)), name="standby", daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        copies.want({})  # so that a copy that is being opened stops, too
        for thread in threads:
            thread.join()
        try:
            copies.close()
        finally:
            placing.close()
