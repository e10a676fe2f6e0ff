"""Two dozen bugs on purpose: each patches the real code while it is planted, and the simulation has to find it.

A kit that finds nothing shows that there is nothing only if it finds what is there. ``hunt(bug)`` runs seeds with one
bug in place until a check catches it; without the bug the same seeds break no promise.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from stateflow.catalog.model import Guarantee
from stateflow.lab.faults.planted import planting, planting_commits, planting_time, planting_writers
from stateflow.lab.faults.simulation.history import History, Profile, generate
from stateflow.lab.faults.simulation.simulate import run
from stateflow.lab.pool import process_pool
from stateflow.lab.quiet import quiet

SEEDS_MAX = 400
"""A bug that so many seeds do not find was missed."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One bug, and what histories it is looked for in."""

    name: str
    about: str
    profile: Profile
    plant: Callable[[], AbstractContextManager[None]]
    needs: tuple[str, ...] = ()
    """Words without which a history cannot show it: each is a step's verb, or in its detail. Others are passed over."""

    setting: Callable[[History], bool] = lambda _: True
    """Whether a history is set up such that it can show it."""

    shares: bool = False
    """Whether it is in what tasks do that share writers, or in what those do that have one each."""
    guarantee: Guarantee | None = None
    """Where only one of them can show it: exactly-once, a worker's proof of membership is refused, too."""

    def fits(self, history: History) -> bool:
        """Whether a history could show the bug."""
        shares = history.writers if self.shares else [not writers for writers in history.writers]
        if not all(shares) or self.guarantee not in (None, history.guarantee) or not self.setting(history):
            return False
        return all(
            any(word == step.verb or word in step.detail for step in history.steps) for word in self.needs
        )


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


def _idle_from_the_start(history: History) -> bool:
    """An input that says nothing at first soon counts as idle."""
    return history.is_silent and history.idle_ms < 1_000


def _flushes_rarely(history: History) -> bool:
    """There are commits between two flushes, for a kill to tell what was flushed from what was not."""
    return history.flush_ms > 1_000


def _commits_slowly(history: History) -> bool:
    return history.commits_slowly


BUGS: tuple[PlantedBug, ...] = (
    PlantedBug(
        "reset_to_earliest",
        "a restore whose position is out of range begins at the log's start, onto the old content",
        "crash",
        planting.reset_to_earliest,
        ("ahead",),
    ),
    PlantedBug(
        "position_apart",
        "the changelog position is kept apart from the batch that it stands for",
        "crash",
        planting.position_apart,
        ("kill",),
        _flushes_rarely,
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
        ("kill",),
    ),
    PlantedBug(
        "image_before_files",
        "an image is published before its files are there",
        "image",
        planting.image_before_files,
        ("objects.put",),
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
        ("era",),
    ),
    PlantedBug(
        "zombie_retries",
        "a fenced worker makes itself a new producer and goes on with what it has",
        "crash",
        planting.zombie_retries,
        ("freeze", "thaw"),
    ),
    PlantedBug(
        "unflushed_records",
        "commit records are sent while what they prove may still be on its way",
        "torn",
        planting.unflushed_records,
        ("tear",),
    ),
    PlantedBug(
        "unflushed_offsets",
        "the group's offsets are sent while the commit records may still be on their way",
        "torn",
        planting.unflushed_offsets,
        ("tear",),
    ),
    PlantedBug(
        "key_misrouted",
        "one key in a thousand is re-keyed to the partition beside its own",
        "time",
        planting.key_misrouted,
        ("bulk",),
    ),
    PlantedBug(
        "commit_record_left_out",
        "at least once there are no commit records, and the guarantee is changed",
        "switch",
        planting.commit_record_left_out,
        ("guarantee",),
    ),
    PlantedBug(
        "idle_for_ever",
        "an input that was idle once is not waited for again",
        "time",
        planting_time.idle_for_ever,
        ("speak",),
        _idle_from_the_start,
    ),
    PlantedBug(
        "idle_behind",
        "an input is idle although there is more to read on it",
        "time",
        planting_time.idle_behind,
    ),
    PlantedBug(
        "furthest_input",
        "event time is that of the input that is furthest, not of the one that is behind",
        "time",
        planting_time.furthest_input,
    ),
    PlantedBug(
        "late_by_watermark",
        "a record is late when its task's event time is past it, whoever was behind",
        "time",
        planting_time.late_by_watermark,
    ),
    PlantedBug(
        "expired_before_due",
        "what a timer looks for is judged as of event time now, not of when it was due",
        "time",
        planting_time.expired_before_due,
    ),
    PlantedBug(
        "event_time_forgotten",
        "a task that starts again does not know how far event time had come",
        "time",
        planting_time.event_time_forgotten,
    ),
    PlantedBug(
        "claims_ignored",
        "whoever opens a task does not fence the shared writers that claimed it before",
        "crash",
        planting_writers.claims_ignored,
        ("freeze", "thaw"),
        shares=True,
        guarantee="at-least-once",
    ),
    PlantedBug(
        "claimed_in_passing",
        "the claim of a task is released while it is written for",
        "crash",
        planting_writers.claimed_in_passing,
        ("freeze", "thaw"),
        shares=True,
        guarantee="at-least-once",
    ),
    PlantedBug(
        "writer_outlives_abort",
        "after an abort the other tasks of the writer go on as if nothing were",
        "crash",
        planting_writers.writer_outlives_abort,
        ("raise",),
        shares=True,
    ),
    PlantedBug(
        "committed_by_halves",
        "one task commits, and what others have sent by the same writer goes with it",
        "crash",
        planting_writers.committed_by_halves,
        ("kill",),
        shares=True,
    ),
    PlantedBug(
        "fed_amid_its_commit",
        "a task is given records while its commit is in flight",
        "crash",
        planting_commits.fed_amid_its_commit,
        setting=_commits_slowly,
    ),
    PlantedBug(
        "let_go_amid_its_commit",
        "a task is let go of while its commit is in flight",
        "crash",
        planting_commits.let_go_amid_its_commit,
        setting=_commits_slowly,
    ),
    PlantedBug(
        "proved_by_another_member",
        "a commit is proved by the member as which its client came back, after others had its tasks",
        "crash",
        planting_commits.proved_by_another_member,
        ("freeze", "thaw"),
        shares=True,
        guarantee="exactly-once",
    ),
)


def hunt(bug: PlantedBug, seeds_max: int = SEEDS_MAX, *, seed_first: int = 0) -> Catch:
    """Run seeds with the bug in place, from ``seed_first`` on, until one finds it."""
    started = time.monotonic()
    with planted(bug), quiet():
        histories = (generate(seed, bug.profile) for seed in itertools.count(seed_first))
        fitting = (history for history in histories if bug.fits(history))
        for tried, history in enumerate(itertools.islice(fitting, seeds_max), start=1):
            findings = run(history).findings
            if findings:
                kind, check, message = findings[0]
                seconds = time.monotonic() - started
                return Catch(bug.name, True, kind, check, message, history.seed, tried, seconds)
    return Catch(bug.name, False, "", "", "", None, seeds_max, time.monotonic() - started)


def hunt_all(
    seeds_max: int = SEEDS_MAX, on_catch: Callable[[Catch], None] | None = None, *, processes: int = 1
) -> list[Catch]:
    """Hunt each of the bugs; ``on_catch`` is told of each in turn, caught or not."""
    catches = []
    for catch in _catches(seeds_max, processes):
        catches.append(catch)
        if on_catch is not None:
            on_catch(catch)
    return catches


def _catches(seeds_max: int, processes: int) -> Iterator[Catch]:
    if processes == 1:
        yield from (hunt(bug, seeds_max) for bug in BUGS)
        return
    with process_pool(processes) as pool:
        yield from pool.map(partial(_hunt_named, seeds_max), [bug.name for bug in BUGS])


def _hunt_named(seeds_max: int, name: str) -> Catch:
    return hunt(bug_named(name), seeds_max)


@contextmanager
def planted(bug: PlantedBug) -> Iterator[None]:
    """Inside, the bug is in the code of this process."""
    with bug.plant():
        yield


def bug_named(name: str) -> PlantedBug:
    """The bug of that name; KeyError when there is none."""
    found: dict[str, Any] = {bug.name: bug for bug in BUGS}
    return found[name]  # type: ignore[no-any-return]
