"""When a run on Spark counts as over. The query is played; the application and its log are real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from stateflow.clock import SystemClock
from stateflow.errors import BrokerRefused, JobFailed, TopicMissing, TopicRecreated
from stateflow.lab.applications.words import Words, topology
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.worker.prepare import prepare
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Pipeline
from stateflow.spark.runner import _Run
from stateflow.spark.transient import FAILURES_MAX, Restarts, cause_of


class PlayedQuery:
    """A query that is told what happens while the run waits for its last micro-batch."""

    def __init__(
        self,
        *,
        active: bool = True,
        meanwhile: Callable[[], object] = lambda: None,
        failure: str | None = None,
    ) -> None:
        self.isActive = active
        self._failure = None if failure is None else RuntimeError(failure)
        self._meanwhile = meanwhile

    @property
    def status(self) -> dict[str, Any]:
        self._meanwhile()
        return {"isTriggerActive": False}

    def exception(self) -> Exception | None:
        """What Spark says of its end."""
        return self._failure

    def stop(self) -> None:
        self.isActive = False


def follow(
    words: Words,
    folder: Path,
    *queries: PlayedQuery,
    check: Callable[[], object] = lambda: None,
    stops: bool = False,
) -> int:
    """Follow queries, one after the other as each has failed; how many were started."""
    graph, clock = topology(words.app), SystemClock()
    wiring = prepare(words.cluster, graph, "exactly-once", 2, clock)
    pipeline = Pipeline(
        topology=graph, guarantee="exactly-once", partitions=2, load=lambda: topology(words.app)
    )
    worker = WorkerSettings(state_dir=folder)
    run = _Run(words.cluster, wiring, pipeline, Connection("nowhere:1"), worker, clock)
    waiting = list(queries)
    run._stopping.wait = lambda timeout=None: run._stopping.is_set()  # type: ignore[method-assign]
    if stops:
        run._stopping.set()
    run.follow(lambda: cast("Any", waiting.pop(0)), until_idle=True, check=check)
    return len(queries) - len(waiting)


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


LOST = "SparkException: Python worker failed to connect back.\n\tat org.apache.spark"


def test_a_failure_that_passes_starts_the_query_again(
    words: Words, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failed = [PlayedQuery(active=False, failure=LOST) for _ in range(3)]
    assert follow(words, tmp_path, *failed, PlayedQuery()) == 4
    said = [record.message for record in caplog.records if "begins again" in record.message]
    assert said == [
        f"The query failed and begins again in {seconds} s: SparkException: Python worker failed to connect back."
        for seconds in (1, 2, 4)
    ]


def test_a_failure_that_does_not_pass_ends_the_run_with_its_cause(words: Words, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="failed to connect back"):
        follow(words, tmp_path, *[PlayedQuery(active=False, failure=LOST) for _ in range(FAILURES_MAX + 1)])


def test_failures_with_progress_between_them_are_not_in_a_row() -> None:
    seen = iter(range(100))
    restarts = Restarts(lambda: next(seen))
    assert {restarts.pause_seconds() for _ in range(30)} == {1.0}


@pytest.mark.parametrize(
    ("failure", "passes"),
    [
        ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks)", True),
        ("stateflow.errors.ProducerFenced: another instance owns the task", True),
        ("stateflow.errors.TransactionAborted: too long", True),
        ("ModuleNotFoundError: No module named 'shop'", False),
        ("stateflow.errors.CatalogMismatch: it is another application's", False),
        ("ValueError: bad record", False),
    ],
)
def test_which_failures_pass_by_themselves(failure: str, passes: bool) -> None:
    assert (cause_of(f"Job aborted\n{failure}\n\tat x") == failure) is passes
    assert (cause_of(f"Job aborted\n{failure}\n\tat x") is not None) is passes


def test_a_failure_of_the_application_ends_the_run_at_once(words: Words, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="ValueError"):
        follow(words, tmp_path, PlayedQuery(active=False, failure="ValueError: bad record"))


MISSING = """SparkException: Failed when Python streaming data source perform latestOffset: Traceback
  File "/x.py", line 65, in request
cimpl.KafkaException: KafkaError{code=UNKNOWN_TOPIC_OR_PART}

The above exception was the direct cause of the following exception:

stateflow.errors.TopicMissing: A topic does not exist. What to do: create it.
 SQLSTATE: 38000
"""


def test_an_error_of_ours_ends_the_run_as_itself(words: Words, tmp_path: Path) -> None:
    with pytest.raises(TopicMissing, match="A topic does not exist") as raised:
        follow(words, tmp_path, PlayedQuery(active=False, failure=MISSING))
    assert raised.value.action == "create it."


def test_a_topic_that_was_missing_amid_its_recreation_is_told_as_recreated(
    words: Words, tmp_path: Path
) -> None:
    def recreate() -> None:
        words.cluster.delete([f"{words.app}-in"])
        words.cluster.create([TopicSpec(f"{words.app}-in", 2)])

    with pytest.raises(TopicRecreated, match="was deleted and created again"):
        follow(words, tmp_path, PlayedQuery(active=False, failure=MISSING), check=recreate)


def test_a_query_that_met_the_signal_to_stop_has_not_failed(words: Words, tmp_path: Path) -> None:
    words.feed(10)
    stopped = PlayedQuery(active=False, failure="SparkException: Python worker exited")
    assert follow(words, tmp_path, stopped, stops=True) == 1


def test_a_driver_that_cannot_be_seen_any_more_ends_the_run_with_the_reason(
    words: Words, tmp_path: Path
) -> None:
    def check() -> None:
        raise BrokerRefused("the group may not be read.", action="allow it.")

    words.feed(10)
    query = PlayedQuery()
    with pytest.raises(BrokerRefused, match="may not be read"):
        follow(words, tmp_path, query, check=check)
    assert not query.isActive


def test_the_end_is_not_believed_of_a_source_that_is_another_topic_now(words: Words, tmp_path: Path) -> None:
    name = f"{words.app}-in"

    def recreate() -> None:
        words.cluster.delete([name])
        words.cluster.create([TopicSpec(name, 2)])

    with pytest.raises(TopicRecreated, match=f"the source {name} was deleted and created again"):
        follow(words, tmp_path, PlayedQuery(), check=recreate)
