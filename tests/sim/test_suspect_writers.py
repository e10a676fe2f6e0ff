"""Jobs whose writers become unfit after a transaction, as when its EndTxn was sent twice, go on with new ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateflow.errors import TransactionAborted
from stateflow.log.base import Appended, Writer
from stateflow.log.forwarding import ForwardingWriter
from stateflow.record import TopicPartition
from stateflow.scale import application_merge
from stateflow.scale.committed_chunks import ABORTED_CHUNKS_MAX
from tests.sim.test_application_merge import ADDS, merge_of_two, rest, take_in, two_sides
from tests.sim.test_savepoints import running


class Suspect(ForwardingWriter):
    """Commits so many times; then it refuses whatever comes next."""

    def __init__(self, writer: Writer, commits_max: int) -> None:
        super().__init__(writer)
        self._commits_left = commits_max

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        if not self._commits_left:
            super().abort()
            raise TransactionAborted("the end of the one before was sent twice.", action="take a new writer.")
        self._commits_left -= 1
        return super().commit(timeout_seconds)


def suspected(cluster: Any, monkeypatch: pytest.MonkeyPatch, ids: str, commits_max: int = 1) -> list[str]:
    """From here on writers whose ids contain ``ids`` are like that; their ids, as they are made."""
    made: list[str] = []
    real: Callable[[str | None], Writer] = cluster.writer

    def writer(transactional_id: str | None = None) -> Writer:
        if transactional_id is None or ids not in transactional_id:
            return real(transactional_id)
        made.append(transactional_id)
        return Suspect(real(transactional_id), commits_max)

    monkeypatch.setattr(cluster, "writer", writer)
    return made


def test_a_savepoint_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = running(tmp_path, 7)
    savepoint = world.create()
    world.run()
    world.stop()
    made = suspected(world.cluster, monkeypatch, "-restore-g")
    world.restore(savepoint)
    assert len(made) > len(set(made)), "some partition takes more than one chunk"
    monkeypatch.undo()
    world.begin("w0", "w1")
    world.run()
    world.stop()
    assert world.state() == world.expected()


def test_an_application_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = two_sides()
    one.change(*ADDS)
    two.change(*ADDS, *ADDS)
    rest(one, two)
    monkeypatch.setattr(application_merge, "CHUNK_KEYS", 1)
    made = suspected(one.driver.cluster, monkeypatch, "-merge-")
    take_in(one, merge_of_two(one))
    assert len(made) > len(set(made)), "some partition takes more than one chunk"
    monkeypatch.undo()
    one.driver.restore()
    one.model.merge(two.model)
    one.check()


def test_a_broker_that_aborts_for_ever_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = two_sides()
    two.change(*ADDS)
    rest(one, two)
    made = suspected(one.driver.cluster, monkeypatch, "-merge-", commits_max=0)
    with pytest.raises(TransactionAborted):
        take_in(one, merge_of_two(one))
    assert made.count(made[-1]) == ABORTED_CHUNKS_MAX
