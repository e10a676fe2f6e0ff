"""When a run on Spark counts as over. The query is played; the application and its log are real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from stateflow.clock import SystemClock
from stateflow.errors import JobFailed
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.prepare import prepare
from stateflow.runtime.settings import WorkerSettings
from stateflow.spark.connection import Connection
from stateflow.spark.runner import Pipeline, _Run
from stateflow.testing.words import Words, topology


class PlayedQuery:
    """A query that is told what happens while the run waits for its last micro-batch."""

    def __init__(self, *, active: bool = True, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.isActive = active
        self._meanwhile = meanwhile

    @property
    def status(self) -> dict[str, Any]:
        self._meanwhile()
        return {"isTriggerActive": False}

    def exception(self) -> None:
        """Spark gives no reason."""

    def stop(self) -> None:
        self.isActive = False


def follow(words: Words, folder: Path, query: PlayedQuery) -> None:
    graph, clock = topology(words.app), SystemClock()
    wiring = prepare(words.cluster, graph, "exactly-once", 2, clock)
    pipeline = Pipeline(
        topology=graph, guarantee="exactly-once", partitions=2, load=lambda: topology(words.app)
    )
    worker = WorkerSettings(state_dir=folder)
    run = _Run(words.cluster, wiring, pipeline, Connection("nowhere:1"), worker, clock)
    run.follow(cast("Any", query), until_idle=True)


@pytest.fixture
def words() -> Words:
    return Words.create(MemoryCluster(), "words")


def test_what_comes_after_the_end_was_reached_is_for_the_next_run(words: Words, tmp_path: Path) -> None:
    query = PlayedQuery(meanwhile=lambda: words.feed(1))
    follow(words, tmp_path, query)
    assert not query.isActive


def test_a_query_that_ends_before_the_end_of_its_input_is_told(words: Words, tmp_path: Path) -> None:
    words.feed(10)
    with pytest.raises(JobFailed, match="before its input"):
        follow(words, tmp_path, PlayedQuery(active=False))
