"""What a restore would do, in words: one row per store of each task, as `restore --dry-run` prints them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stateflow.checkpoint.image_selection import plan_with_images
from stateflow.checkpoint.jobs import RestoreJob
from stateflow.checkpoint.planner import Action, StorePlan, TaskPlan
from stateflow.clock import Clock
from stateflow.errors import ChangelogTrimmed
from stateflow.log.base import Cluster


@dataclass(frozen=True, slots=True)
class Decision:
    """What is decided for one store."""

    task: str
    store: str
    action: Action | Literal["refused"]
    slots: int
    offset_first: int
    offset_next: int
    reason: str
    image: str | None

    @property
    def sentence(self) -> str:
        """The decision for a person to read."""
        first = f"fetch the image {self.image.rpartition('/')[2]}; " if self.image is not None else ""
        match self.action:
            case "empty":
                done = "nothing to restore"
            case "reuse":
                done = "read nothing"
            case "tail":
                done = f"read {self.slots} slots from {self.offset_first} on"
            case "replay":
                done = f"begin empty and read {self.slots} slots from {self.offset_first} on"
            case "refused":
                done = "cannot be restored"
        return f"{first}{done}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Decided:
    """One task: its plan, the image that it begins with, or the error that it ends with."""

    job: RestoreJob
    plan: TaskPlan | None
    image: str | None = None
    refused: ChangelogTrimmed | None = None

    @property
    def rows(self) -> list[Decision]:
        """One row per store; a task that cannot be restored has one for each, too."""
        if self.plan is not None:
            return decisions(self.plan, self.image)
        assert self.refused is not None, "there is a plan or an error"
        why = self.refused.message
        return [
            Decision(self.job.task, store, "refused", 0, 0, 0, why, None) for store in self.job.changelogs
        ]


def decide(cluster: Cluster, job: RestoreJob, clock: Clock) -> Decided:
    """Plan one task, changing nothing. Raises ``TopicMissing`` and ``TopicRecreated``, which concern them all."""
    try:
        plan, image = plan_with_images(cluster, job, clock)
    except ChangelogTrimmed as error:
        return Decided(job, None, refused=error)
    return Decided(job, plan, image)


def decisions(plan: TaskPlan, image: str | None) -> list[Decision]:
    """The rows of a plan."""
    return [_row(plan.task, store, image) for store in plan.stores]


def _row(task: str, store: StorePlan, image: str | None) -> Decision:
    log = store.offsets
    return Decision(
        task, store.store, store.action, log.slots, log.offset_first, log.offset_next, store.reason, image
    )
