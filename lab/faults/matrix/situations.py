"""Bringing an application to where a point is reached, with a process armed for it.

Each situation ends when the fault has struck, and returns who it struck; None when it did not come to that.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from stateflow.catalog.model import Catalog
from stateflow.catalog.names import transactional_id
from stateflow.changelog.format import is_reserved
from stateflow.checkpoint.image_selection import images_of as images_of_job
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.jobs import RestoreJob, jobs_of
from stateflow.checkpoint.locations import open_objects
from stateflow.clock import SystemClock
from stateflow.failpoints import Strike
from stateflow.lab.faults.matrix.companions import COMPANION_SETTINGS, COMPANIONS
from stateflow.lab.faults.matrix.plan import Situation
from stateflow.lab.faults.matrix.site import (
    IMAGES,
    STRIKE_SECONDS,
    Site,
    Struck,
    struck_while_fed,
)
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

BULK_KEYS = 21_000
"""More than a restore must read before it writes a sorted file for RocksDB to take in."""

_FIRST, _SECOND, _THIRD = "w0", "w1", "w2"
_HANDOVER_SECONDS = 4.0
_IDLE_SECONDS = 1.2
_KEYS_TORN_MAX = 3


def fresh(site: Site, strike: Strike) -> Struck:
    """The very first start: no topic of the application's own is there."""
    site.feed(20)
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def reopened(site: Site, strike: Strike) -> Struck:
    """A worker was killed; the next one finds its disk, and the end of a changelog to read."""
    _live_and_die(site)
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def emptied(site: Site, strike: Strike) -> Struck:
    """A worker was killed and its disk is gone: the next one reads all of its changelogs."""
    _live_and_die(site)
    lose_disk(site, _FIRST)
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def bulk(site: Site, strike: Strike) -> Struck:
    """The same with so many keys that the restore writes sorted files."""
    site.feed_one_each(BULK_KEYS)
    worker = site.worker(_FIRST)
    site.drain(worker, seconds=60)
    site.kill(worker)
    lose_disk(site, _FIRST)
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def torn(site: Site, strike: Strike) -> Struck:
    """The changelogs of a dead worker end with half a commit that has become visible."""
    _live_and_die(site)
    torn_total = sum(
        _tear(site.cluster, site.catalog, job)
        for job in jobs_of(site.catalog, site.cluster.cluster_id, Path())
    )
    assert torn_total, "there is state that can be torn"
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def running(site: Site, strike: Strike) -> Struck:
    """A worker is at work."""
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def imaging(site: Site, strike: Strike) -> Struck:
    """A worker makes images of its state all the time, and deletes changelogs before them if it is told to."""
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def collecting(site: Site, strike: Strike) -> Struck:
    """The images that a worker made are collected by hand."""
    worker = site.worker(_FIRST)
    if not site.feed_until(lambda: len(images_of(site)) >= 6, STRIKE_SECONDS):
        return None
    site.stop(worker)
    collector = site.tool("gc", collection(site), strike)
    return collector if site.happens(lambda: collector.has_struck, STRIKE_SECONDS) else None


def installing(site: Site, strike: Strike) -> Struck:
    """A worker made images and lost its disk: the next one begins with them, in the place of an empty database."""
    worker = site.worker(_FIRST)
    if not site.feed_until(lambda: len(images_of(site)) >= 2, STRIKE_SECONDS):
        return None
    site.kill(worker)
    lose_disk(site, _FIRST)
    for job in jobs_of(site.catalog, site.cluster.cluster_id, worker.disk):
        RocksTaskStores.open(job.directory, job.changelogs, RocksResources()).close()
    return struck_while_fed(site, site.worker(_FIRST, strike=strike))


def rebalancing(site: Site, strike: Strike) -> Struck:
    """A second worker joins, and a third if need be: the first must give up some of its tasks.

    One handover may come to nothing, as an epoch under way when the group moves on is given up before its task is.
    """
    worker = site.worker(_FIRST, strike=strike)
    site.feed(20)
    site.drain()
    for name in (_SECOND, _THIRD):
        site.worker(name)
        if site.feed_until(lambda: worker.has_struck, _HANDOVER_SECONDS):
            return worker
    return struck_while_fed(site, worker)


def lost(site: Site, strike: Strike) -> Struck:
    """A worker hangs so long that another has taken everything; then it wakes up and finds out."""
    worker = site.worker(_FIRST, strike=strike)
    site.feed(20)
    site.drain()
    site.happens(
        lambda: False, _IDLE_SECONDS
    )  # what it still had to commit would tell it, too, that it was replaced
    site.signal(worker, signal.SIGSTOP)
    second = site.worker(_SECOND)
    site.feed(20)
    site.drain(second)
    site.signal(worker, signal.SIGCONT)
    return struck_while_fed(site, worker)


def stopping(site: Site, strike: Strike) -> Struck:
    """A worker is asked to stop while there is input."""
    worker = site.worker(_FIRST, strike=strike)
    site.feed(20)
    site.drain()
    site.feed(20)
    site.signal(worker, signal.SIGTERM)
    return worker if site.happens(lambda: worker.has_struck, STRIKE_SECONDS) else None


SITUATIONS: Mapping[Situation, Callable[[Site, Strike], Struck]] = {
    "fresh": fresh,
    "reopened": reopened,
    "emptied": emptied,
    "bulk": bulk,
    "torn": torn,
    "running": running,
    "imaging": imaging,
    "trimming": imaging,
    "collecting": collecting,
    "installing": installing,
    "rebalancing": rebalancing,
    "lost": lost,
    "stopping": stopping,
    **COMPANIONS,
}

WITH_IMAGES: Mapping[str, str] = {
    "STATEFLOW_IMAGES": IMAGES,  # below the folder in which the case's processes are started
    "STATEFLOW_IMAGE_INTERVAL_SECONDS": "0.2",
    "STATEFLOW_IMAGES_KEPT": "2",
}
SETTINGS: Mapping[Situation, Mapping[str, str]] = {
    "bulk": {"STATEFLOW_PARTITIONS": "1"},
    "imaging": WITH_IMAGES,
    "collecting": {**WITH_IMAGES, "STATEFLOW_IMAGES_KEPT": "20"},
    "installing": WITH_IMAGES,
    "trimming": {**WITH_IMAGES, "STATEFLOW_TRIM": "true", "STATEFLOW_IMAGES_PROMISED": "1"},
    **COMPANION_SETTINGS,
}
"""What else the processes of a situation are told."""


def lose_disk(site: Site, name: str) -> None:
    """Throw away all local state of a worker that has ended."""
    shutil.rmtree(site.place / name, ignore_errors=True)


def collection(site: Site) -> list[str]:
    """The command line that collects all images but the newest."""
    keep = ["--keep", "1", "--grace", "0s", "--images", IMAGES]
    return ["checkpoint", "gc", "--app", site.app, "--brokers", site.lane.brokers, *keep]


def images_of(site: Site) -> dict[str, TaskImages]:
    """Name of every published image of the application → the images of its task; none before there is a catalog."""
    if not site.happens(lambda: site.is_prepared, 0):
        return {}
    objects, clock = open_objects(str(site.place / IMAGES)), SystemClock()
    return {
        name: images
        for job in jobs_of(site.catalog, site.cluster.cluster_id, Path())
        for images in [images_of_job(job, objects, clock)]
        for name in images.names()
    }


def _live_and_die(site: Site) -> None:
    """A worker processes something and is killed, with records on their way."""
    site.feed(20)
    worker = site.worker(_FIRST)
    site.drain(worker)
    site.feed(20)
    site.kill(worker)


def _tear(cluster: Cluster, catalog: Catalog, job: RestoreJob) -> int:
    """Append changes to each changelog of a task as its owner would, with no commit record behind them.

    That is what a late EndTxn makes of a transaction of which only changes had arrived. Returns how many.
    """
    writer = cluster.writer(transactional_id(catalog.app.app, catalog.active.generation, job.task))
    writer.begin()
    total = 0
    for changelog in job.changelogs.values():
        (log,) = cluster.ranges([changelog]).values()
        rows = [
            (key, value)
            for batch in read_range(cluster, changelog, log)
            for key, value in zip(batch.keys, batch.values, strict=True)
            if key is not None and not is_reserved(key)
        ]
        oldest = dict(
            reversed(rows)
        )  # a value that was true once: nothing but the commit records tells it apart
        for key in sorted(oldest)[:_KEYS_TORN_MAX]:
            writer.send(changelog.topic, key, oldest[key], partition=changelog.partition)
            total += 1
    writer.commit()
    writer.close()
    return total
