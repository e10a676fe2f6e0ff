"""The processes that share the work of a study."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from stateflow.scale.processes import end_with_parent

_GARBAGE_THRESHOLDS = (10_000, 10, 10)


def process_pool(
    processes: int, begin: Callable[..., None] | None = None, *arguments: object
) -> ProcessPoolExecutor:
    """A pool of fresh processes, which end with this one; in each of them ``begin`` is called first."""
    context = multiprocessing.get_context("spawn")  # RocksDB's threads do not survive a fork
    return ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(begin, arguments))


def _begin(begin: Callable[..., None] | None, arguments: tuple[object, ...]) -> None:
    end_with_parent()
    if begin is not None:
        begin(*arguments)
    # What was imported stays. To look through it again and again took an eighth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
