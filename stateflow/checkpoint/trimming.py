"""Image + trim: deleting a task's changelogs before what its images hold, so that no cleaner has to bound them.

What may be deleted is decided here, by three rules:

1. A restore must be able to begin with any of the ``retained`` newest images, so nothing is deleted that one of them
   reads. Only images count that are *safe* (read back and compared), that belong to the changelogs as they are, and
   whose tails are still in the log.
2. The newest commit record before that point stays, and everything after it: whoever takes the task over finds the
   last commit, its number and its input offsets in the log, also when nothing was committed since.
3. Nothing is deleted of a log that has no such commit record yet.

``DeleteRecords`` moves the beginning of a log and nothing else; to repeat it, or to come late with an older point, does
nothing. Log and images are read again for each decision, so nothing rests on what an earlier owner of the task thought.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.manifest import Manifest
from stateflow.checkpoint.tails import commit_record_before
from stateflow.checkpoint.transfers import Cancelled
from stateflow.clock import Clock
from stateflow.errors import StateCorrupt
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.record import OffsetRange, TopicPartition

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trimmable:
    """The changelogs of one task, as whoever owns them knows them."""

    changelogs: Mapping[str, TopicPartition]
    topic_ids: Mapping[str, str]
    """Changelog topic → the id that the catalog recorded."""


@dataclass(frozen=True, slots=True)
class TrimPoint:
    """How much of one changelog goes: all before ``offset_next``, its present beginning when that is nothing."""

    store: str
    changelog: TopicPartition
    log: OffsetRange
    offset_next: int
    reason: str

    @property
    def slots(self) -> int:
        """Offset slots that go."""
        return max(0, self.offset_next - self.log.offset_first)


def retained_images(
    cluster: Cluster, task: Trimmable, images: TaskImages, retained: int
) -> dict[str, Manifest]:
    """The newest ``retained`` images that a restore can begin with, whatever happens to the others, by name.

    Fewer, when there are not so many that are safe.
    """
    present = cluster.describe(topic for topic, _ in task.changelogs.values())
    logs = cluster.ranges(changelog for changelog in task.changelogs.values() if changelog.topic in present)
    found: dict[str, Manifest] = {}
    for name in images.safe_names():
        if len(found) == retained:
            break
        manifest = images.load(name)
        if all(
            changelog.topic in present
            and present[changelog.topic].topic_id == task.topic_ids[changelog.topic]
            and _reaches(manifest, store, changelog, task.topic_ids[changelog.topic], logs[changelog])
            for store, changelog in task.changelogs.items()
        ):
            found[name] = manifest
    return found


def trim_points(
    cluster: Cluster, task: Trimmable, images: TaskImages, retained: int, clock: Clock
) -> list[TrimPoint]:
    """How much of each changelog may be deleted now. Raises what reading the log or the images raises."""
    usable = retained_images(cluster, task, images, retained)
    points = []
    for store, changelog in task.changelogs.items():
        log = cluster.ranges([changelog])[changelog]
        if len(usable) < retained:
            why = f"{len(usable)} of {retained} retained images are safe and can be used"
            points.append(TrimPoint(store, changelog, log, log.offset_first, why))
            continue
        oldest = min(manifest.stores[store].offset_next for manifest in usable.values())
        kept = commit_record_before(cluster, changelog, log.until(oldest), clock)
        if kept is None:
            why = "it has no commit record before the images yet"
            points.append(TrimPoint(store, changelog, log, log.offset_first, why))
        else:
            why = f"the oldest of {retained} retained images reaches {oldest}"
            points.append(TrimPoint(store, changelog, log, max(kept, log.offset_first), why))
    return points


def carry_out(cluster: Cluster, points: Sequence[TrimPoint]) -> int:
    """Delete what the points say, one changelog after the other; returns the offset slots that went."""
    total = 0
    for point in points:
        if point.slots:
            reach("trim.before_delete")
            cluster.trim({point.changelog: point.offset_next})
            reach("trim.after_delete")
            total += point.slots
    return total


def confirm_newest(images: TaskImages, retained: int, cancelled: Cancelled) -> list[str]:
    """Read back the newest images that are not marked as safe yet; returns what is wrong, image by image."""
    problems: list[str] = []
    safe = set(images.safe_names())
    for name in images.names()[:retained]:
        if name in safe:
            continue
        try:
            wrong = images.confirm(name, cancelled)
        except (StateCorrupt, FileNotFoundError) as error:
            wrong = [str(error)]
        problems += [f"{name}: {what}" for what in wrong]
    return problems


def _reaches(
    manifest: Manifest, store: str, changelog: TopicPartition, topic_id: str, log: OffsetRange
) -> bool:
    held = manifest.stores.get(store)
    return (
        held is not None
        and (held.changelog, held.topic_id) == (changelog.topic, topic_id)
        and log.offset_first <= held.offset_next <= log.offset_next
    )
