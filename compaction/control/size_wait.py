"""Waiting until a policy shows: compaction needs an append that closes a segment, and a cleaner that looks again.

An idle partition is never compacted: Kafka closes a segment only when a record arrives, and never cleans the
segment being written. A *touch* is one record per partition under a reserved key that restores pass over
(:data:`stateflow.changelog.format.TOUCH_KEY`, without a value, so that compaction drops it in the end). It is
written only to changelogs of this library: another system's restore would take it for state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stateflow.changelog.format import TOUCH_KEY
from stateflow.clock import Clock, SystemClock
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.sensing.measure import changelog_bytes
from stateflow.log.base import Cluster

_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class SizeWait:
    """How the size of a log developed while waiting."""

    topic: str
    bytes_before: int
    bytes_after: int
    seconds: float
    touches: int
    reached: bool
    """True when the size came down to the wanted one before the deadline."""
    why: str
    """Empty when reached, else what most likely stands in the way."""


def touch(cluster: Cluster, topic: str) -> int:
    """Append one touch record to every partition of a changelog of ours; returns how many."""
    partitions = cluster.describe([topic])[topic].partitions
    writer = cluster.writer()
    try:
        for number in range(partitions):
            writer.send(topic, TOUCH_KEY, None, partition=number)
        writer.commit()
    finally:
        writer.close()
    return partitions


def wait_for_size(
    cluster: Cluster,
    admin: ClusterAdmin,
    topic: str,
    *,
    bytes_at_most: float,
    deadline_seconds: float = 60.0,
    touch_every_seconds: float | None = None,
    progress: Callable[[float, int], None] = lambda _seconds, _bytes: None,
    clock: Clock | None = None,
) -> SizeWait:
    """Wait until the log of a topic is at most so large, or the deadline has passed.

    With ``touch_every_seconds`` a touch record is appended that often, for a changelog of ours that nobody writes
    to. ``progress`` gets the seconds waited and the size at every look. Never raises for a missed deadline.
    """
    clock = clock or SystemClock()
    start, touched_at, touches = clock.monotonic_seconds(), float("-inf"), 0
    before = size = changelog_bytes(admin, topic)
    seconds = 0.0
    while size > bytes_at_most and seconds < deadline_seconds:
        if touch_every_seconds is not None and seconds - touched_at >= touch_every_seconds:
            touches, touched_at = touches + touch(cluster, topic), seconds
        time.sleep(_LOOK_SECONDS)
        size, seconds = changelog_bytes(admin, topic), clock.monotonic_seconds() - start
        progress(seconds, size)
    reached = size <= bytes_at_most
    why = "" if reached else "Not there yet: " + "; ".join(obstacles(admin, topic, touches)) + "."
    return SizeWait(topic, before, size, seconds, touches, reached, why)


def obstacles(admin: ClusterAdmin, topic: str, touches: int) -> list[str]:
    """What may keep the cleaner from a topic, by the settings in force: a half-sentence each."""
    config = admin.topic_config(topic)
    backoff_ms = admin.cleaner_settings(admin.leaders(topic)[0]).backoff_ms
    told = [f"the cleaner looks every {backoff_ms / 1000:g} s"]
    if touches == 0:
        told.append("a partition that nobody writes to closes no segment, and the open one is never cleaned")
    told.append(
        f"a segment stays open up to {int(config['segment.ms']) / 1000:g} s or {config['segment.bytes']} "
        f"bytes"
    )
    if int(config["min.compaction.lag.ms"]):
        told.append(f"records younger than {int(config['min.compaction.lag.ms']) / 1000:g} s are not cleaned")
    told.append(f"less than {float(config['min.cleanable.dirty.ratio']):.0%} dirty is left alone")
    return told
