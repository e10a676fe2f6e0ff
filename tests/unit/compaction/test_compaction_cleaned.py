"""Seeing a pass of the cleaner: whenever it comes between two questions, the size told is the one after it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from stateflow.compaction.cluster.admin import ClusterAdmin
from stateflow.compaction.cluster.logdirs import ReplicaSize
from stateflow.compaction.control import cleaned
from stateflow.compaction.control.cleaned import CleanerPasses
from stateflow.compaction.sensing.cleaner_checkpoint import FILE_NAME
from stateflow.record import TopicPartition

LARGE, SMALL = 57_000, 600


class PassBetweenQuestions:
    """A broker whose cleaner finishes a pass right after the question of that number was answered."""

    def __init__(self, directory: Path, after_question: int) -> None:
        self._directory, self._after_question = directory, after_question
        self.questions, self.size_bytes = 0, LARGE
        self._write_checkpoint(0)

    def replica_sizes(self, topics: Iterable[str]) -> list[ReplicaSize]:
        self.questions += 1
        told = [ReplicaSize(1, TopicPartition(next(iter(topics)), 0), self.size_bytes, str(self._directory))]
        if self.questions == self._after_question:
            self.size_bytes = SMALL
            self._write_checkpoint(400)
        return told

    def _write_checkpoint(self, offset: int) -> None:
        (self._directory / FILE_NAME).write_text(f"0\n1\nt 0 {offset}\n")


@pytest.mark.parametrize("after_question", range(3, 9))
def test_the_size_told_is_the_one_after_the_pass(
    after_question: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaned, "local_broker", lambda _admin: 1)
    broker = PassBetweenQuestions(tmp_path, after_question)
    passes = CleanerPasses(cast(ClusterAdmin, broker), "t")
    assert (passes.seen_by, passes.bytes_before, passes.waited_for) == ("checkpoint", LARGE, {0})
    while passes.cleaned != passes.waited_for:
        passes.look()
        assert broker.questions < 20
    assert sum(passes.sizes.values()) == SMALL
