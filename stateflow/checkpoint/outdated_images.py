"""Images by generation: those of a generation that is not active any more begin nothing, whatever they hold.

A repartition moves keys, so its tasks are others, with other changelogs: until they have images of their own,
a restore reads whole changelogs. What savepoints hold is not meant here: these bring back the partitions they knew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from stateflow.checkpoint.images import Collected, TaskImages
from stateflow.checkpoint.objects import ObjectStore
from stateflow.clock import Clock

_NAME = re.compile(
    r"(?:^|/)g(?P<generation>\d+)/(?P<task>[^/]+)/(?P<what>manifests/\d{20}\.json$|files/|full/)"
)


@dataclass(slots=True)
class GenerationImages:
    """The images of one generation of an application."""

    generation: int
    tasks: set[str] = field(default_factory=set)
    """Those that have an image."""
    with_contents: set[str] = field(default_factory=set)
    """Those of which contents are there, perhaps a savepoint's, or what a deleted one has left."""
    images: int = 0
    size_bytes: int = 0
    """Of all their contents, and of those that savepoints share with them."""


def images_by_generation(objects: ObjectStore, app: str) -> dict[int, GenerationImages]:
    """Generation → what there is of it, perhaps no image. Raises ``OSError`` when it cannot be listed."""
    found: dict[int, GenerationImages] = {}
    for info in objects.list(app):
        match = _NAME.match(info.name.removeprefix(f"{app}/"))
        if match is None:
            continue
        number = int(match["generation"])
        of = found.setdefault(number, GenerationImages(number))
        if match["what"].startswith("manifests/"):
            of.tasks.add(match["task"])
            of.images += 1
        else:
            of.with_contents.add(match["task"])
            of.size_bytes += info.size_bytes
    return {number: found[number] for number in sorted(found)}


def outdated_images(objects: ObjectStore, app: str, active: int) -> list[GenerationImages]:
    """Those of every generation but the active one that has any, oldest first."""
    return [of for of in outdated_contents(objects, app, active) if of.images]


def outdated_contents(objects: ObjectStore, app: str, active: int) -> list[GenerationImages]:
    """Every generation but the active one of which there is anything: savepoints hold it, or nobody does any more."""
    return [of for number, of in images_by_generation(objects, app).items() if number != active]


def collect_outdated(
    objects: ObjectStore, app: str, outdated: GenerationImages, clock: Clock, *, grace_ms: int, dry_run: bool
) -> dict[str, Collected]:
    """Remove the images of a generation that is not active any more, but nothing that a savepoint holds; by task."""
    return {
        task: TaskImages(objects, app, outdated.generation, task, clock).collect(
            keep=0, grace_ms=grace_ms, dry_run=dry_run
        )
        for task in sorted(outdated.tasks | outdated.with_contents)
    }
