"""A writer that several tasks share: its transaction is over for all of them, or for none."""

from __future__ import annotations

import pytest

from stateflow.errors import TransactionAborted
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.task.shared_writer import SharedWriter, WriterPart

TOPIC = "out"


@pytest.fixture
def shared() -> SharedWriter:
    cluster = MemoryCluster()
    cluster.create([TopicSpec(TOPIC, 1)])
    return SharedWriter(cluster.writer("writer"), "writer")


def begun(shared: SharedWriter, task: str) -> WriterPart:
    """The part of a task that has something in the transaction."""
    part = shared.part(task)
    assert part is not None
    part.begin()
    return part


def test_nothing_is_committed_when_another_task_has_given_up(shared: SharedWriter) -> None:
    """Though all that this one has was sent before: its worker ended with an assertion."""
    mine, other = begun(shared, "mine"), begun(shared, "other")
    other.give_up(TransactionAborted("The epoch of other failed.", action="open it again."))
    with pytest.raises(TransactionAborted, match="of this task and others has come to its end"):
        shared.commit({mine})


def test_a_transaction_is_not_committed_by_halves(shared: SharedWriter) -> None:
    mine = begun(shared, "mine")
    begun(shared, "other")
    with pytest.raises(AssertionError, match=r"\['other'\] would be committed by halves"):
        shared.commit({mine})
