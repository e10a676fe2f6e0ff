"""Situations in which something stands beside the worker: a savepoint under way, copies of its state elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stateflow.failpoints import Strike
from stateflow.lab.faults.matrix.plan import Situation
from stateflow.lab.faults.matrix.site import STRIKE_SECONDS, Site, Struck, struck_while_fed

_FIRST, _SECOND = "w0", "w1"
_WARM_SECONDS = 8.0
_CREATE_SECONDS = 10


def snapshotting(site: Site, strike: Strike) -> Struck:
    """A savepoint is made while the worker is at work."""
    worker = site.worker(_FIRST, strike=strike)
    site.feed(20)
    site.drain()
    site.tool("savepoint", creation(site, "one"))
    return struck_while_fed(site, worker)


def saving(site: Site, strike: Strike) -> Struck:
    """The same, and the fault strikes whoever asked for the savepoint."""
    site.worker(_FIRST)
    site.feed(20)
    site.drain()
    maker = site.tool("save", creation(site, "one"), strike)
    return struck_while_fed(site, maker)


def refilling(site: Site, strike: Strike) -> Struck:
    """The application has stopped, and is put back to a savepoint of this moment."""
    worker = site.worker(_FIRST)
    site.feed(40)
    site.drain(worker)
    site.stop(worker)
    site.run("save", [*creation(site, "one"), "--state-dir", str(worker.disk)])
    tool = site.tool("refill", ["savepoint", "restore", *_which(site), "one"], strike)
    return tool if site.happens(lambda: tool.has_struck, STRIKE_SECONDS) else None


def copying(site: Site, strike: Strike) -> Struck:
    """A worker runs; another joins and begins to keep copies of its state."""
    first = site.worker(_SECOND)
    site.feed(20)
    site.drain(first)
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def promoting(site: Site, strike: Strike) -> Struck:
    """A worker keeps copies; the one that runs the tasks is killed."""
    first = site.worker(_SECOND)
    site.feed(20)
    site.drain(first)
    copier = site.worker(_FIRST, strike=strike)
    site.feed_until(lambda: copier.has_struck, _WARM_SECONDS)
    site.kill(first)
    return struck_while_fed(site, copier)


def placing(site: Site, strike: Strike) -> Struck:
    """The first worker of an application with copies decides who runs what."""
    site.feed(20)
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


COMPANIONS: Mapping[Situation, Callable[[Site, Strike], Struck]] = {
    "snapshotting": snapshotting,
    "saving": saving,
    "refilling": refilling,
    "copying": copying,
    "promoting": promoting,
    "placing": placing,
}

_WITH_COPIES = {"STATEFLOW_STANDBY_REPLICAS": "1", "STATEFLOW_PLACEMENT_SETTLE_SECONDS": "0.3"}
COMPANION_SETTINGS: Mapping[Situation, Mapping[str, str]] = {
    "copying": _WITH_COPIES,
    "promoting": _WITH_COPIES,
    "placing": _WITH_COPIES,
}


def creation(site: Site, name: str) -> list[str]:
    """The command line that makes a savepoint."""
    place = str(site.place / "savepoints")
    return ["savepoint", "create", *_which(site), name, "--to", place, "--timeout", f"{_CREATE_SECONDS}s"]


def _which(site: Site) -> list[str]:
    return ["--app", site.app, "--brokers", site.lane.brokers]
