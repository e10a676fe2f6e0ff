"""The tuner on the changelog of a Kafka Streams application: without a catalog, while it runs, its counts kept."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.testing.broker import TestBroker
from tests.compaction_command import invoke
from tests.foreign.kafka_streams import CountingApplication
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

KEYS = 300
FIRST_RECORDS = 80_000
TRICKLE_RECORDS = 100
TRICKLE_SECONDS = 0.05
STREAMS_SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "session.timeout.ms": "6000",  # its successor waits for so long
    "heartbeat.interval.ms": "1000",
}


class Words:
    """The input of the application, and what a count of it must come to."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.counts: Counter[str] = Counter()
        self._draw = random.Random(4)
        self._writer = cluster.writer()
        self._topic = topic

    def write(self, records: int) -> None:
        for _ in range(records):
            word = f"word-{self._draw.randrange(KEYS)}"
            self.counts[word] += 1
            self._writer.send(self._topic, word.encode(), b"x" * 20, partition=0)
        self._writer.commit()

    def close(self) -> None:
        self._writer.close()


def await_counts(app: CountingApplication, wanted: Counter[str]) -> None:
    def are_there() -> bool:
        found = app.counts()
        assert sum(found.values()) <= wanted.total(), "counted twice"
        return found == wanted

    wait_until(are_there, lambda: f"{wanted.total()} words to be counted, {sum(app.counts().values())} are")


@contextmanager
def arriving(words: Words) -> Iterator[None]:
    """Words go on arriving until the block ends."""
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(TRICKLE_SECONDS):
            words.write(TRICKLE_RECORDS)

    writing = threading.Thread(target=trickle)
    writing.start()
    try:
        yield
    finally:
        over.set()
        writing.join()


def test_a_kafka_streams_application_restores_from_the_changelog_that_was_tuned(
    broker: TestBroker,
    cluster: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path))
    name = f"streams-{uuid.uuid4().hex[:8]}"
    source = f"{name}-words"
    cluster.create([TopicSpec(source, 1)])
    words = Words(cluster, source)
    with closing(
        CountingApplication(broker.bootstrap, name, source, tmp_path / "one", STREAMS_SETTINGS)
    ) as app:
        changelog = app.changelog
        words.write(FIRST_RECORDS)
        await_counts(app, words.counts)
        where = ["--brokers", broker.bootstrap, "--topic", changelog]
        goal = ["--seconds", "1s", "--restore-rate", "100000", "--restore-within", "300ms"]
        wait = ["--transaction-timeout", "1s", "--until-cleaned", "--wait", "90s", "--json"]
        with arriving(words):
            code, told, _ = invoke(capsys, "apply", *where, *goal, *wait)
        assert code == 0, told
        cleaned = next(one["cleaned"] for one in told if "cleaned" in one)
        assert cleaned["reached"]
        assert told[0]["recommendation"]["best"]["policy"]["min_lag_ms"] >= 1000, "transactions were seen"
        assert cleaned["touches"] == 0, "nothing of ours is written to what somebody else restores from"
        assert cleaned["bytes_after"] < cleaned["bytes_before"] / 4
        await_counts(app, words.counts)

    with closing(
        CountingApplication(broker.bootstrap, name, source, tmp_path / "two", STREAMS_SETTINGS)
    ) as app:
        await_counts(app, words.counts)
        words.write(1000)
        await_counts(app, words.counts)
    words.close()

    assert invoke(capsys, "rollback", *where)[0] == 0
    assert cluster.topic_config(changelog)["segment.bytes"] == "1073741824"
    cluster.delete([topic for topic in cluster.list_topics() if topic.startswith(name)])


def test_the_offsets_of_consumer_groups_can_be_measured_and_recommended_for(
    broker: TestBroker, cluster: KafkaCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every broker has this one, and its keys and values are binary structures of Kafka's own."""
    where = ["--brokers", broker.bootstrap, "--topic", "__consumer_offsets"]
    goal = ["--seconds", "500ms", "--rate", "10", "--restore-rate", "100000", "--restore-within", "20s"]
    code, told, _ = invoke(capsys, "recommend", *where, *goal, "--json")
    assert code == 0
    assert told[-1]["reachable"]
