"""The progress that a driver writes: records that were counted, not Spark's rows, which are tasks."""

from __future__ import annotations

import functools
import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateflow.errors import ConfigError
from stateflow.lab.applications.words import Words, topology
from stateflow.log.kafka import KafkaCluster
from stateflow.runtime.settings import WorkerSettings
from stateflow.spark.connection import Connection
from stateflow.spark.driver import Pipeline
from stateflow.spark.long_running import LongRunSettings, run_long
from stateflow.spark.runner import PipelineSettings, run_spark
from stateflow.testing.broker import TestBroker
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.usefixtures("session")]

LINES, WORDS_EACH = 300, 5


@pytest.fixture
def words(broker: TestBroker) -> Iterator[Words]:
    cluster = KafkaCluster(broker.bootstrap)
    made = Words.create(cluster, f"words-{uuid.uuid4().hex[:8]}")
    made.feed(LINES)
    yield made
    cluster.close()


def pipeline(words: Words) -> Pipeline:
    load = functools.partial(topology, words.app)
    return Pipeline(topology=load(), guarantee="exactly-once", partitions=3, load=load)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_micro_batches_count_records(words: Words, broker: TestBroker, tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    settings = PipelineSettings(trigger_seconds=0.2, slots_per_batch_max=250, progress_file=file)
    worker = WorkerSettings(state_dir=tmp_path / "state")
    totals = run_spark(
        pipeline(words), Connection(broker.bootstrap), worker, until_idle=True, settings=settings
    )
    words.assert_counted_once()
    told = lines_of(file)
    last = told[-1]
    assert (last["ended"], last["records_total"], last["behind_slots"]) == (True, totals.records_total, 0)
    assert last["records_total"] == LINES + LINES * WORDS_EACH
    by_stage = {stage: figures["records_total"] for stage, figures in last["stages"].items()}
    assert sorted(by_stage.values()) == [LINES, LINES * WORDS_EACH]
    assert all(figures["epochs_total"] > 0 for figures in last["stages"].values())
    records = [line["records_total"] for line in told]
    assert records == sorted(records)
    assert any(line["records_per_second"] > 0 for line in told)
    batches = [line["batch"] for line in told if line["batch"] is not None]
    assert len(batches) >= 2, "Spark told of the micro-batches"
    assert all(batch["trigger_ms"] >= 0 for batch in batches)
    assert 0 < sum(batch["tasks"] for batch in batches) <= totals.tasks_total


def test_long_running_workers_tell_what_they_commit(words: Words, broker: TestBroker, tmp_path: Path) -> None:
    file, stopping = tmp_path / "progress.jsonl", threading.Event()

    def stop_when_caught_up() -> None:
        try:
            wait_until(
                lambda: file.exists() and any(line["behind_slots"] == 0 for line in lines_of(file)),
                "a line that says that nothing is left",
                seconds=120,
            )
        finally:
            stopping.set()

    watching = threading.Thread(target=stop_when_caught_up)
    watching.start()
    settings = LongRunSettings(workers=1, progress_file=file)
    worker = WorkerSettings(state_dir=tmp_path / "state", commit_interval_seconds=0.2)
    totals = run_long(
        pipeline(words), Connection(broker.bootstrap), worker, settings=settings, stopping=stopping
    )
    watching.join()
    words.assert_counted_once()
    last = lines_of(file)[-1]
    assert (last["runner"], last["ended"]) == ("long-running", True)
    assert last["slots_total"] == totals.slots_total >= LINES + LINES * WORDS_EACH
    counted = LINES + LINES * WORDS_EACH
    assert (last["records_total"], last["sent_total"]) == (counted, 2 * LINES * WORDS_EACH)
    of_tasks = [task for stage in last["stages"].values() for task in stage["tasks"].values()]
    assert sum(task["records_total"] for task in of_tasks) == counted
    assert all(task["workers_total"] == 1 for task in of_tasks)
    # What the first stage tells of event time as it ends may be left unread by the second one.
    assert sum(task["behind_slots"] for task in of_tasks) == last["behind_slots"] <= 6
    assert last["workers"] == {"0": {"restarts_total": 0, "tasks": []}}


def test_a_file_that_cannot_be_written_is_refused(words: Words, broker: TestBroker, tmp_path: Path) -> None:
    settings = PipelineSettings(progress_file=tmp_path / "missing" / "progress.jsonl")
    with pytest.raises(ConfigError, match="cannot be written"):
        run_spark(
            pipeline(words),
            Connection(broker.bootstrap),
            WorkerSettings(state_dir=tmp_path / "state"),
            until_idle=True,
            settings=settings,
        )
