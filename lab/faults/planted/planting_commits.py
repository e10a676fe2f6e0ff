"""How planted bugs of commits that are in flight get into the code; see ``planting``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stateflow.lab.faults.planted.planting import replaced
from stateflow.log.base import GroupMetadata
from stateflow.log.memory.consumer import MemoryGroupConsumer
from stateflow.record import TopicPartition
from stateflow.runtime.opening.fencing import Predecessors
from stateflow.runtime.task.task import Task
from stateflow.runtime.worker.commits import Commits
from stateflow.runtime.worker.intake import Intake


@contextmanager
def fed_amid_its_commit() -> Iterator[None]:
    """A task is given records while its commit is in flight: they get into an epoch whose position is before them."""

    def first(intake: Intake) -> TopicPartition | None:
        found = next(iter(intake._waiting), None)
        return None if found in intake._put_off else found

    with replaced((Intake, "first", property(first)), (Task, "_assert_is_free", lambda _: None)):
        yield


@contextmanager
def let_go_amid_its_commit() -> Iterator[None]:
    """Nobody waits for commits in flight before tasks are let go of."""

    def at_once(_commits: Commits, _primaries: Iterable[TopicPartition] | None = None) -> None:
        return

    with replaced((Commits, "wait_until_written", at_once)):
        yield


@contextmanager
def proved_by_another_member() -> Iterator[None]:
    """A commit takes whatever proof its client has by then, also that of the member as which it came back.

    Nor are shared writers fenced, as elsewhere that would refuse the commit before its proof does.
    """

    def renewed(group: MemoryGroupConsumer, _proof: GroupMetadata) -> GroupMetadata:
        return group._client_proof()

    with replaced((MemoryGroupConsumer, "renewed", renewed), (Predecessors, "_fence_claims", lambda _: None)):
        yield
