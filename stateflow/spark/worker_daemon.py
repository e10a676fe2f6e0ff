"""Spark's Python daemon with all imported that its workers need: they are forked from it, and begin with it.

Spark starts it as ``python -m stateflow.spark.worker_daemon MODULE`` (``spark.python.daemon.module``), for sessions on
this machine. Its own daemon imports nothing before it forks, so each worker, and each that takes the place of one that
was lost, imports pyspark, stateflow, the Kafka client and Arrow anew: 0.4 s of CPU time, and memory that is not shared.

Signals are left to the driver: systemd sends SIGTERM to all processes of a service, and workers that died of it could
not commit when the driver asks them to.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import BinaryIO

MODULE = "stateflow.spark.worker_daemon"
WORKERS = "pyspark.worker"
"""The module of those that run tasks. Those of other modules plan, one at a time, and are started seldom."""
NEEDED = (WORKERS, "stateflow.log.kafka", "stateflow.spark.engine", "stateflow.spark.executor")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(module: str) -> None:
    """Serve until Spark ends; workers of this module find imported what they need."""
    # First: imports take a while. Spark ends this process by the end of its input, too.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    from pyspark.daemon import manager

    if module == WORKERS:
        import_needed()
        workers = sys.modules[WORKERS]
        workers.main = functools.partial(_serve, workers.main)  # type: ignore[attr-defined]
    else:  # Spark imports their module behind the fork
        os.register_at_fork(
            after_in_child=functools.partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _SIGNALS)
        )
    gc.collect()
    gc.freeze()  # a worker collects after each task, and need not look at what stays
    manager()


def import_needed() -> None:
    """Import it without starting a thread: only the one that forks lives on in a worker, and locks of others stay."""
    for name in NEEDED:
        importlib.import_module(name)
    # As Spark sets it; else NumPy, which Arrow imports, starts some.
    if os.environ.get("OMP_NUM_THREADS") == "1":
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
        importlib.import_module("pyarrow")


def _serve(serve: Callable[[BinaryIO, BinaryIO], None], infile: BinaryIO, outfile: BinaryIO) -> None:
    """What a worker does for a task: it ends when Spark kills it, or has gone.

    What it starts itself has its signals. Between two tasks they are held back: Spark's daemon sets them anew for each.
    """
    for number in _SIGNALS:
        signal.signal(number, _left_to_the_driver)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        serve(infile, outfile)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _left_to_the_driver(_number: int, _frame: object) -> None:
    """A handler, as what a worker starts would inherit that a signal is ignored."""


if __name__ == "__main__":
    main(sys.argv[1])
