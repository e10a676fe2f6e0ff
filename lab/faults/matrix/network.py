"""Cases in which the network spoils one EndTxn request of a worker, which goes on or dies before it arrives late."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from stateflow.catalog.names import task_id, transactional_id
from stateflow.clock import SystemClock
from stateflow.lab.faults.matrix.plan import Case
from stateflow.lab.faults.matrix.site import Site
from stateflow.lab.network.faults import Action, Caught, Fault
from stateflow.lab.network.proxy import KafkaProxy
from stateflow.runtime.opening.claims import ClaimsLog

_CAUGHT_SECONDS = 10.0
_LATE_SECONDS_MAX = 0.4
_DELIVER_SECONDS = 5.0
_CONCURRENT_TRANSACTIONS = 51


@contextmanager
def spoilt(site: Site, case: Case) -> Iterator[None]:
    """Let a proxy spoil one commit of a worker; inside, the worker or its successor goes on behind that proxy."""
    with KafkaProxy(site.lane.brokers) as proxy:
        site.settings["STATEFLOW_BROKERS"] = proxy.bootstrap
        worker = site.worker("w0")
        site.feed(20)
        site.drain(worker)
        caught = proxy.arm(Fault(Action(case.fault), transactional_id=_chosen(site, case), commits=True))
        if not site.feed_until(lambda: caught.happened, _CAUGHT_SECONDS):
            yield
            return
        site.injected = True
        site.feed_until(lambda: False, site.random.uniform(0, _LATE_SECONDS_MAX))
        if case.point == "network.dies":
            site.signal(
                worker, signal.SIGSTOP
            )  # wherever it is: in the middle of the next transaction, mostly
            _deliver(caught)
            site.kill(worker)
            site.again(worker)
        else:
            _deliver(caught)
        site.feed(10)
        site.drain(worker)
        yield


def _chosen(site: Site, case: Case) -> str:
    """The transactional id of one of the application's tasks, or of the writer that they share."""
    catalog = site.catalog
    if case.shared_writers:
        with closing(ClaimsLog(site.cluster, catalog.app.app, SystemClock())) as claims:
            return site.random.choice(claims.read().writers)
    tasks = [task_id(stage, p) for stage in sorted(catalog.stages) for p in range(catalog.partitions(stage))]
    return transactional_id(catalog.app.app, catalog.active.generation, site.random.choice(tasks))


def _deliver(caught: Caught) -> None:
    """Let the late request arrive, when the coordinator is not busy with markers."""
    deadline = time.monotonic() + _DELIVER_SECONDS
    while caught.wait().deliver() == _CONCURRENT_TRANSACTIONS and time.monotonic() < deadline:
        time.sleep(0.01)
