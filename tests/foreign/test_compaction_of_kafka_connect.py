"""The tuner on the topics of a Kafka Connect cluster: its sources go on exactly where they stopped."""

from __future__ import annotations

import uuid
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.log.reading import read_topic
from stateflow.record import TopicPartition
from stateflow.testing.broker import TestBroker
from tests.compaction_command import invoke
from tests.foreign.kafka_connect import ConnectWorker
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

TASKS = 4
RECORDS_PER_SECOND = 200
FIRST_OFFSETS = 400


def numbers_by_task(cluster: KafkaCluster, topic: str) -> dict[int, list[int]]:
    """What every task wrote, in the order of the log."""
    found: dict[int, list[int]] = defaultdict(list)
    for batch in read_topic(cluster, topic):
        for key, value in zip(batch.keys, batch.values, strict=True):
            assert key is not None
            assert value is not None
            found[int.from_bytes(key)].append(int.from_bytes(value))
    return found


def log_end(cluster: KafkaCluster, topic: str) -> int:
    return cluster.ranges([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset_next


def test_a_connect_cluster_goes_on_from_the_offsets_topic_that_was_tuned(
    broker: TestBroker,
    cluster: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path))
    name = f"connect-{uuid.uuid4().hex[:8]}"
    numbers = f"{name}-numbers"
    cluster.create([TopicSpec(numbers, 1)])
    with closing(ConnectWorker(broker.bootstrap, name, tmp_path / "one")) as worker:
        worker.add_source("count", numbers, TASKS, RECORDS_PER_SECOND)
        worker.await_running("count", TASKS)
        wait_until(lambda: log_end(cluster, worker.offsets_topic) > FIRST_OFFSETS, "offsets of the tasks")

        where = ["--brokers", broker.bootstrap, "--topic", worker.offsets_topic]
        goal = ["--seconds", "2s", "--restore-rate", "500", "--restore-within", "500ms"]
        code, told, _ = invoke(capsys, "apply", *where, *goal, "--until-cleaned", "--wait", "90s", "--json")
        assert code == 0, told
        cleaned = next(one["cleaned"] for one in told if "cleaned" in one)
        assert cleaned["reached"]
        assert cleaned["touches"] == 0, "nothing of ours is written to what Connect reads its offsets from"
        assert cleaned["bytes_after"] < cleaned["bytes_before"]

        for rarely_written in (worker.configs_topic, worker.status_topic):
            there = ["--brokers", broker.bootstrap, "--topic", rarely_written, "--seconds", "500ms"]
            bound = ["--rate", "1", "--restore-rate", "10000", "--restore-within", "20s"]
            code, told, _ = invoke(capsys, "recommend", *there, *bound, "--json")
            assert code == 0
            assert told[-1]["reachable"]

    written = {task: len(found) for task, found in numbers_by_task(cluster, numbers).items()}
    with closing(ConnectWorker(broker.bootstrap, name, tmp_path / "two")) as worker:
        worker.await_running("count", TASKS)

        def all_went_on() -> bool:
            now = numbers_by_task(cluster, numbers)
            return all(len(now[task]) > before for task, before in written.items())

        wait_until(all_went_on, "every task to go on")

    found = numbers_by_task(cluster, numbers)
    assert sorted(found) == list(range(TASKS))
    for task, those in found.items():
        assert those == list(range(those[0], those[0] + len(those))), f"task {task} lost or repeated numbers"

    assert invoke(capsys, "rollback", *where)[0] == 0
    cluster.delete([topic for topic in cluster.list_topics() if topic.startswith(name)])
