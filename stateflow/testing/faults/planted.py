"""Ten bugs on purpose: each patches the real code while it is planted, and the simulation has to find it.

A kit that finds nothing shows that there is nothing only if it finds what is there. ``hunt(bug)`` runs seeds with one
bug in place until a check catches it; without the bug the same seeds break no promise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from stateflow.testing.faults import planting
from stateflow.testing.faults.history import Profile, generate
from stateflow.testing.faults.simulate import quiet, run

SEEDS_MAX = 400
"""A bug that so many seeds do not find was missed."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One bug, and what histories it is looked for in."""

    name: str
    about: str
    profile: Profile
    plant: Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Catch:
    """Whether a planted bug was found: by which check, in which seed, after how many."""

    bug: str
    caught: bool
    kind: str
    check: str
    message: str
    seed: int | None
    seeds_tried: int
    seconds: float

    def as_dict(self) -> dict[str, object]:
        """As JSON takes it."""
        return {
            "bug": self.bug,
            "caught": self.caught,
            "by": f"{self.kind} ({self.check})" if self.caught else None,
            "seed": self.seed,
            "seeds_tried": self.seeds_tried,
            "seconds": round(self.seconds, 2),
        }


BUGS: tuple[PlantedBug, ...] = (
    PlantedBug(
        "reset_to_earliest",
        "a restore whose position is out of range begins at the log's start, onto the old content",
        "crash",
        planting.reset_to_earliest,
    ),
    PlantedBug(
        "position_apart",
        "the changelog position is kept apart from the batch that it stands for",
        "crash",
        planting.position_apart,
    ),
    PlantedBug(
        "iterator_status_ignored",
        "a scan that stops at a damaged block is taken for the end",
        "disk",
        planting.iterator_status_ignored,
    ),
    PlantedBug(
        "topic_id_ignored",
        "a topic that was created again is taken for its predecessor",
        "recreate",
        planting.topic_id_ignored,
    ),
    PlantedBug(
        "commit_record_ignored",
        "what Kafka's marker makes visible counts, commit record or not",
        "torn",
        planting.commit_record_ignored,
    ),
    PlantedBug(
        "flush_before_commit",
        "the local store gets the epoch before the log commits it",
        "crash",
        planting.flush_before_commit,
    ),
    PlantedBug(
        "image_before_files",
        "an image is published before its files are there",
        "image",
        planting.image_before_files,
    ),
    PlantedBug(
        "trim_past_image",
        "a changelog is trimmed further than the newest image reaches",
        "image",
        planting.trim_past_image,
    ),
    PlantedBug(
        "ttl_without_tombstone",
        "expired entries are deleted locally, and not in the changelog",
        "crash",
        planting.ttl_without_tombstone,
    ),
    PlantedBug(
        "zombie_retries",
        "a fenced worker makes itself a new producer and goes on with what it has",
        "crash",
        planting.zombie_retries,
    ),
)


def hunt(bug: PlantedBug, seeds_max: int = SEEDS_MAX) -> Catch:
    """Run seeds with the bug in place, from 0 on, until one finds it."""
    started = time.monotonic()
    with planted(bug), quiet():
        for seed in range(seeds_max):
            findings = run(generate(seed, bug.profile)).findings
            if findings:
                first = findings[0]
                seconds = time.monotonic() - started
                return Catch(bug.name, True, first.kind, first.check, first.message, seed, seed + 1, seconds)
    return Catch(bug.name, False, "", "", "", None, seeds_max, time.monotonic() - started)


def hunt_all(seeds_max: int = SEEDS_MAX, on_catch: Callable[[Catch], None] | None = None) -> list[Catch]:
    """Hunt each of the bugs; ``on_catch`` is told of each in turn, caught or not."""
    catches = []
    for bug in BUGS:
        catches.append(hunt(bug, seeds_max))
        if on_catch is not None:
            on_catch(catches[-1])
    return catches


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """Inside, the bug is in the code of this process."""
    with bug.plant():
        yield


def bug_named(name: str) -> PlantedBug:
    """The bug of that name; KeyError when there is none."""
    found: dict[str, Any] = {bug.name: bug for bug in BUGS}
    return found[name]  # type: ignore[no-any-return]
