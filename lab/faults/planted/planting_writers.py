"""How planted bugs of shared writers get into the code; see ``planting``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from stateflow.lab.faults.planted.planting import replaced
from stateflow.log.outgoing import Outgoing
from stateflow.record import TopicPartition
from stateflow.runtime.opening.fencing import Predecessors
from stateflow.runtime.task.shared_writer import SharedWriter, WriterPart
from stateflow.runtime.worker.commits import Commits, RunningTask


@contextmanager
def claims_ignored() -> Iterator[None]:
    """Whoever opens a task fences the task's own id, and looks for no shared writer that may have written for it."""
    with replaced((Predecessors, "_fence_claims", lambda _: None)):
        yield


@contextmanager
def claimed_in_passing() -> Iterator[None]:
    """A task is let go of, for all that others can know, as soon as its predecessors are fenced."""
    real = Predecessors.remove_claims

    def forgetful(predecessors: Predecessors) -> None:
        real(predecessors)
        claim = predecessors._claim
        if claim is not None:
            with predecessors._fencing.claims(predecessors._wiring.app) as log:
                log.remove([claim.key])

    with replaced((Predecessors, "remove_claims", forgetful)):
        yield


@contextmanager
def writer_outlives_abort() -> Iterator[None]:
    """A shared writer that has aborted goes on with the next transaction, whoever had anything in the one before."""
    with replaced((SharedWriter, "end", lambda _writer, _error: None)):
        yield


@contextmanager
def committed_by_halves() -> Iterator[None]:
    """Of tasks that share a writer only those commit that are due; what the others have sent goes with it."""
    real, real_append = SharedWriter.commit, SharedWriter.append

    def again(writer: SharedWriter, records: Outgoing) -> None:
        writer.begin()
        real_append(writer, records)

    def careless(writer: SharedWriter, _parts: set[WriterPart], *rest: float) -> Any:
        return real(writer, set(writer._sent), *rest)

    def some(
        _commits: Commits, primaries: Iterable[TopicPartition], running: Mapping[TopicPartition, RunningTask]
    ) -> dict[TopicPartition, RunningTask]:
        return {primary: running[primary] for primary in list(primaries)[:1]}

    changes = (SharedWriter, "commit", careless), (SharedWriter, "append", again), (Commits, "sharing", some)
    with replaced(*changes):
        yield
