"""The processes that share the work of a study."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from stateflow.checkpoint.recovery import end_with_parent

_GARBAGE_THRESHOLDS = (10_000, 10, 10)


def process_pool(processes: int, begin: Callable[[], object] | None = None) -> ProcessPoolExecutor:
    """A pool of fresh processes, which end with this one; each of them calls ``begin`` first."""
    context = multiprocessing.get_context("spawn")  # RocksDB's threads do not survive a fork
    return ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(begin,))


def _begin(begin: Callable[[], object] | None) -> None:
    end_with_parent()
    if begin is not None:
        begin()
    spare_what_stays()


def spare_what_stays() -> None:
    """Have the garbage collector pass over all that is there now, and run seldom.

    Modules stay until the process ends. To go through them again and again takes an eighth to a sixth of a study's
    CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
