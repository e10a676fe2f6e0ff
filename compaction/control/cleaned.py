"""Waiting until the cleaner has been everywhere once: every partition that holds something, since a change.

A broker on this machine tells it exactly, in the file where its cleaner keeps how far it has come. From a remote
one it is seen by a log that shrank between two looks: a pass that had nothing to remove is not seen there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from stateflow.clock import Clock, SystemClock
from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.control.size_wait import obstacles, touch
from stateflow.compaction.sensing.cleaner_checkpoint import cleaned_offsets
from stateflow.compaction.sensing.measure import local_broker
from stateflow.errors import WaitTimedOut
from stateflow.log.base import Cluster
from stateflow.record import TopicPartition

_LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How waiting for the cleaner ended."""

    topic: str
    seconds: float
    bytes_before: int
    """At the first look."""
    bytes_after: int
    partitions: int
    """Partitions that held something at the first look."""
    partitions_cleaned: int
    touches: int
    seen_by: Literal["checkpoint", "size"]
    """The cleaner's own file on this machine, or logs that shrank."""
    why: str
    """Empty when every partition was cleaned, else what most likely stands in the way."""

    @property
    def reached(self) -> bool:
        """True when the cleaner was everywhere."""
        return self.partitions_cleaned == self.partitions

    def require(self) -> None:
        """Raise ``WaitTimedOut`` unless the cleaner was everywhere."""
        if not self.reached:
            raise WaitTimedOut(
                f"The cleaner was in {self.partitions_cleaned} of {self.partitions} partitions of {self.topic} "
                f"after {self.seconds:.0f} s. {self.why}",
                action="The settings stand; wait longer, or let the application write.",
                topic=self.topic,
            )


class CleanerPasses:
    """Which partitions of a topic a pass was seen on since the first look, which making this takes.

    Look before the settings change: a quick cleaner has done its work before the call that changed them returns.
    """

    def __init__(self, admin: ClusterAdmin, topic: str) -> None:
        self._admin, self._topic = admin, topic
        self._is_local = local_broker(admin) is not None
        self.sizes, self._directories = self._look()
        self.bytes_before = sum(self.sizes.values())
        self._offsets = self._checkpoint()
        self.seen_by: Literal["checkpoint", "size"] = "size" if self._offsets is None else "checkpoint"
        self.waited_for = {number for number, size in self.sizes.items() if size > 0}
        self.cleaned: set[int] = set()

    def look(self) -> None:
        """Sense once more. How far the cleaner has come is read first: sizes are then those after its pass."""
        now, first = self._checkpoint() or {}, self._offsets or {}
        before, (self.sizes, self._directories) = self.sizes, self._look()
        if self.seen_by == "size":
            shrunk = {number for number, size in self.sizes.items() if size < before.get(number, 0)}
            self.cleaned |= shrunk & self.waited_for
            return
        moved = {
            found.partition
            for found, offset in now.items()
            if found.topic == self._topic and offset > first.get(found, 0)
        }
        self.cleaned |= moved & self.waited_for

    def _look(self) -> tuple[dict[int, int], set[str]]:
        sizes: dict[int, int] = {}
        replicas = self._admin.replica_sizes([self._topic])
        for replica in replicas:
            number = replica.partition.partition
            sizes[number] = max(sizes.get(number, 0), replica.size_bytes)
        return sizes, {replica.directory for replica in replicas}

    def _checkpoint(self) -> dict[TopicPartition, int] | None:
        return cleaned_offsets(self._directories) if self._is_local else None


def wait_until_cleaned(
    cluster: Cluster,
    admin: ClusterAdmin,
    topic: str,
    *,
    deadline_seconds: float = 60.0,
    touch_every_seconds: float | None = None,
    since: CleanerPasses | None = None,
    progress: Callable[[float, int, int], None] = lambda _seconds, _cleaned, _partitions: None,
    clock: Clock | None = None,
) -> Cleaned:
    """Wait until the cleaner has finished a pass over every partition that holds something, or the deadline.

    Counted are passes ``since`` that first look, by default since now; one that was under way then counts, too.
    With ``touch_every_seconds`` a touch record is appended that often, for a changelog of ours. ``progress`` gets
    seconds, partitions cleaned, partitions waited for. Never raises for a missed deadline: see
    :meth:`Cleaned.require`.
    """
    clock = clock or SystemClock()
    passes, start = since or CleanerPasses(admin, topic), clock.monotonic_seconds()
    seconds, touched_at, touches = 0.0, float("-inf"), 0
    while passes.cleaned != passes.waited_for and seconds < deadline_seconds:
        if touch_every_seconds is not None and seconds - touched_at >= touch_every_seconds:
            touches, touched_at = touches + touch(cluster, topic), seconds
        time.sleep(_LOOK_SECONDS)
        passes.look()
        seconds = clock.monotonic_seconds() - start
        progress(seconds, len(passes.cleaned), len(passes.waited_for))
    missing = passes.waited_for - passes.cleaned
    return Cleaned(
        topic=topic,
        seconds=seconds,
        bytes_before=passes.bytes_before,
        bytes_after=sum(passes.sizes.values()),
        partitions=len(passes.waited_for),
        partitions_cleaned=len(passes.cleaned),
        touches=touches,
        seen_by=passes.seen_by,
        why=_why(admin, topic, missing, touches, passes.seen_by) if missing else "",
    )


def _why(admin: ClusterAdmin, topic: str, missing: set[int], touches: int, seen_by: str) -> str:
    numbers = ", ".join(map(str, sorted(missing)[:10])) + (" …" if len(missing) > 10 else "")
    told = obstacles(admin, topic, touches)
    if seen_by == "size":
        told.append("from here a pass shows only by a log that shrinks")
    return f"Not seen in partition {numbers}: " + "; ".join(told) + "."
