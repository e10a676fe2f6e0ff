"""The crash matrix: many cases side by side on one broker, each with an application and processes of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from stateflow.lab.faults.matrix.case import Result, run_case
from stateflow.lab.faults.matrix.fork_server import ForkServer
from stateflow.lab.faults.matrix.plan import Case
from stateflow.lab.faults.matrix.site import Lane
from stateflow.log.kafka import connect

LANES = 6
"""Cases at a time. Most of a case is waiting for timeouts; more than this and a small machine is late for them."""

OnResult = Callable[[Result], None]


def run_matrix(
    cases: Sequence[Case], brokers: str, place: Path, on_result: OnResult, lanes: int = LANES
) -> list[Result]:
    """Run all cases; ``on_result`` is told of each as it ends, in this thread.

    A case that says nothing, as its fault never struck, is run once more.
    Whatever ends this early (Ctrl-C, a bug), no process is left.
    """
    cancelled = threading.Event()
    results: list[Result] = []
    with ForkServer() as fork_server, _lanes(brokers, fork_server, cancelled, lanes) as free:

        def run(case: Case) -> Result:
            lane = free.get()
            try:
                result = run_case(case, lane, place)
                return replace(run_case(case, lane, place), repeated=True) if result.says_nothing else result
            finally:
                free.put(lane)

        with ThreadPoolExecutor(lanes, thread_name_prefix="lane") as pool:
            waiting: set[Future[Result]] = {pool.submit(run, case) for case in cases}
            try:
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        results.append(future.result())
                        on_result(results[-1])
            except BaseException:
                cancelled.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return results


@contextmanager
def _lanes(
    brokers: str, fork_server: ForkServer, cancelled: threading.Event, count: int
) -> Iterator[SimpleQueue[Lane]]:
    """Lanes that are free, each with a connection of its own."""
    free: SimpleQueue[Lane] = SimpleQueue()
    clusters = []
    try:
        for _ in range(count):
            clusters.append(connect(brokers))
            free.put(Lane(clusters[-1], brokers, fork_server, cancelled))
        yield free
    finally:
        for cluster in clusters:
            cluster.close()
