"""`stateflow compaction` from the command line, against a real broker."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import (
    AppEntry,
    Catalog,
    GenerationEntry,
    InputEntry,
    RoutingEntry,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.names import changelog_topic, control_topic
from stateflow.codec.scalar import Integer, String
from stateflow.compaction import ClusterAdmin
from stateflow.errors import (
    ConfigError,
    ObjectiveUnreachable,
    PartitionCountChanged,
    TopicMissing,
    WaitTimedOut,
)
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, connect
from stateflow.testing.broker import TestBroker
from tests.compaction_command import invoke

pytestmark = pytest.mark.broker


@pytest.fixture
def app(broker: TestBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An application's two changelogs, filled, and its catalog."""
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path))
    cluster, name = connect(broker.bootstrap), f"shop{uuid.uuid4().hex[:6]}"
    stores = ["totals", "recent"]
    topics = [changelog_topic(name, store) for store in stores]
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    created = cluster.create([TopicSpec(topic, 1, 1, config) for topic in topics])
    ids = {topic: info.topic_id for topic, info in created.items()}
    ControlTopic(cluster, name).ensure(catalog_of(name, stores, ids))
    writer, source = cluster.writer(), random.Random(1)
    for topic in topics:
        for _ in range(4000):
            writer.send(topic, b"k%03d" % source.randrange(200), source.randbytes(300), partition=0)
    writer.commit()
    writer.close()
    yield name
    cluster.delete([*topics, control_topic(name)])
    cluster.close()


def catalog_of(app: str, stores: list[str], topic_ids: dict[str, str]) -> Catalog:
    """One stage behind a source, with a store of plain numbers per changelog."""
    text, number = String.describe(), Integer.describe()
    return Catalog(
        app=AppEntry(app=app, guarantee="exactly-once"),
        stages={"main": StageEntry(name="main", inputs=(InputEntry(name=f"{app}-in"),), source_partitions=1)},
        stores={
            store: StoreEntry(
                name=store, stage="main", kind="value", layout="plain", key_codec=text, value_codec=number
            )
            for store in stores
        },
        generations={
            0: GenerationEntry(
                generation=0,
                state="active",
                routing=RoutingEntry(kind="modulo", partitions=1),
                topic_ids=topic_ids,
                activated_ms=1,
            )
        },
    )


def test_measure_recommend_apply_and_rollback(
    broker: TestBroker, app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--brokers", broker.bootstrap, "--app", app]
    look = ["--seconds", "200ms", "--rate", "1000", "--restore-rate", "100000"]
    code, found, _ = invoke(capsys, "measure", *where, *look, "--json")
    assert code == 0
    assert [one["live_keys"] for one in found] == [200, 200]

    goal = ["--restore-within", "500ms"]
    code, found, _ = invoke(capsys, "recommend", *where, *look, *goal, "--json")
    assert code == 0
    assert [one["reachable"] for one in found] == [True, True]

    assert all(one["side_effects"]["replication"] == 1 for one in found)

    code, _, text = invoke(capsys, "apply", *where, *look, *goal, "--dry-run")
    assert code == 0
    assert "would change" in text
    assert "\nall " in text, "an application is summed up"
    assert "- why: " not in text, "that is what -v is for"
    code, found, _ = invoke(capsys, "rollback", *where, "--json")
    assert found[0]["error"] == "ConfigError"

    code, found, _ = invoke(capsys, "apply", *where, *look, *goal, "--json")
    assert code == 0
    assert all(one["applied"]["changes"] for one in found)
    code, found, _ = invoke(capsys, "rollback", *where, "--json")
    assert code == 0
    assert all(set(one["changes"].values()) == {None} for one in found)


def test_an_objective_out_of_reach_ends_with_its_code(
    broker: TestBroker, app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = changelog_topic(app, "totals")
    arguments = [
        "--brokers",
        broker.bootstrap,
        "--topic",
        topic,
        "--seconds",
        "200ms",
        "--restore-rate",
        "100",
    ]
    code, _, text = invoke(capsys, "recommend", *arguments, "--restore-within", "1s")
    assert code == ObjectiveUnreachable.exit_code
    assert "cannot meet it" in text
    assert "\n  or " in text
    code, found, _ = invoke(capsys, "recommend", *arguments, "--restore-within", "1s", "--json")
    assert code == ObjectiveUnreachable.exit_code
    assert [one["reachable"] for one in found] == [False], "one line for the topic, and none for the error"
    admin = ClusterAdmin(broker.bootstrap)
    before = admin.topic_overrides(topic)
    code, _, text = invoke(capsys, "apply", *arguments, "--restore-within", "1s")
    assert code == ObjectiveUnreachable.exit_code
    assert "\n  or " in text, "what else would do is shown at once"
    assert admin.topic_overrides(topic) == before
    admin.close()


def test_a_missing_topic_ends_with_its_code(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = invoke(
        capsys, "measure", "--brokers", broker.bootstrap, "--topic", "nothing-here", "--json"
    )
    assert code == TopicMissing.exit_code
    assert found[0]["error"] == "TopicMissing"


def test_the_model_answers_what_if(broker: TestBroker, app: str, capsys: pytest.CaptureFixture[str]) -> None:
    topic = changelog_topic(app, "totals")
    where = ["--brokers", broker.bootstrap, "--topic", topic, "--seconds", "200ms", "--rate", "1000"]
    _, slow, _ = invoke(capsys, "model", *where, "--set", "segment.ms=60000", "--json")
    _, fast, _ = invoke(capsys, "model", *where, "--set", "segment.ms=500", "--json")
    assert fast[0]["prediction"]["size_max_bytes"] < slow[0]["prediction"]["size_max_bytes"]
    code, _, _ = invoke(capsys, "model", *where, "--set", "retention.ms=1", "--json")
    assert code == 2


def test_watching_decides_and_reporting_writes_a_page(
    broker: TestBroker, app: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic = changelog_topic(app, "recent")
    where = ["--brokers", broker.bootstrap, "--topic", topic, "--seconds", "200ms"]
    goal = ["--restore-within", "20s"]
    code, decisions, _ = invoke(
        capsys, "watch", *where, *goal, "--dry-run", "--interval", "100ms", "--for", "300ms", "--json"
    )
    assert code == 0
    assert len(decisions) == 3
    assert all(one["reason"] for one in decisions)
    page = tmp_path / "page.html"
    code, told, _ = invoke(capsys, "report", *where, *goal, "--out", str(page), "--json")
    assert code == 0
    assert told == [{"out": str(page), "topics": [{"topic": topic, "reachable": True}]}]
    assert topic in page.read_text()
    assert "<script" not in page.read_text()


def test_a_calibration_is_told_of_before_it_is_made(
    broker: TestBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(_cluster: KafkaCluster, topics: Iterable[TopicSpec]) -> None:
        raise AssertionError(f"a dry run creates {list(topics)}")

    monkeypatch.setattr(KafkaCluster, "create", create)  # the broker's topics are other tests', too
    code, told, _ = invoke(
        capsys, "calibrate", "--brokers", broker.bootstrap, "--dry-run", "--vary-buffer", "--json"
    )
    assert code == 0
    assert len(told[0]["runs"]) == 9
    assert not Path(told[0]["path"]).exists()


def test_apply_takes_a_saved_measurement_and_waits_for_the_cleaner(
    broker: TestBroker, app: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Measured while it was busy, applied later; an idle changelog of ours is touched until it was cleaned."""
    where = ["--brokers", broker.bootstrap, "--app", app]
    look = ["--seconds", "200ms", "--rate", "2000", "--restore-rate", "100000"]
    _, found, out = invoke(capsys, "measure", *where, *look, "--json")
    saved = tmp_path / "measured.json"
    saved.write_text(out)
    assert len(found) == 2
    goal = ["--measurement", str(saved), "--restore-within", "300ms"]
    code, told, _ = invoke(capsys, "apply", *where, *goal, "--until-cleaned", "--wait", "60s", "--json")
    assert code == 0
    waits = [one["cleaned"] for one in told if "cleaned" in one]
    assert [one["reached"] for one in waits] == [True, True]
    assert all(one["partitions_cleaned"] == 1 and one["touches"] >= 1 for one in waits)
    assert all(one["bytes_after"] < one["bytes_before"] / 4 for one in waits)

    topic = changelog_topic(app, "totals")
    other = json.loads(out.splitlines()[0]) | {"topic": topic, "partitions": 3}
    saved.write_text(json.dumps(other, indent=1))
    one = ["--brokers", broker.bootstrap, "--topic", topic]
    code, told, _ = invoke(capsys, "recommend", *one, *goal, "--json")
    assert code == PartitionCountChanged.exit_code
    code, told, _ = invoke(
        capsys,
        "recommend",
        "--brokers",
        broker.bootstrap,
        "--topic",
        changelog_topic(app, "recent"),
        *goal,
        "--json",
    )
    assert code == ConfigError.exit_code
    assert "holds no measurement" in str(told[0]["message"])


def test_waiting_for_a_cleaner_that_cannot_come_ends_in_time_and_says_why(
    broker: TestBroker, app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The application's catalog is gone, so nothing is touched: the open segment of an idle log stays open."""
    cluster = connect(broker.bootstrap)
    cluster.create([TopicSpec("x-" + app, 1, 1, {"cleanup.policy": "compact"})])
    try:
        writer = cluster.writer()
        for number in range(2000):
            writer.send("x-" + app, b"k%d" % (number % 20), b"v" * 300, partition=0)
        writer.commit()
        writer.close()
        arguments = [
            "--brokers",
            broker.bootstrap,
            "--topic",
            "x-" + app,
            "--seconds",
            "200ms",
            "--rate",
            "9",
        ]
        goal = ["--restore-rate", "100000", "--restore-within", "500ms"]
        code, told, _ = invoke(
            capsys, "apply", *arguments, *goal, "--until-cleaned", "--wait", "1500ms", "--json"
        )
    finally:
        cluster.delete(["x-" + app])
        cluster.close()
    assert code == WaitTimedOut.exit_code
    assert told[-1]["error"] == "WaitTimedOut"
    assert "closes no segment" in str(told[-1]["message"])


def test_brokers_are_given_a_fitting_cleaner_and_get_their_own_back(
    broker: TestBroker, app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = ClusterAdmin(broker.bootstrap)
    try:
        number = next(iter(admin.broker_addresses()))
        before, own = admin.cleaner_settings(number), admin.broker_overrides(number)
        where = ["--brokers", broker.bootstrap, "--app", app, "--broker-settings", "--json"]
        goal = ["--seconds", "200ms", "--rate", "20000", "--restore-rate", "100000", "--restore-within", "1s"]
        code, told, _ = invoke(capsys, "apply", *where, *goal, "--dry-run")
        assert code == 0, told
        assert admin.cleaner_settings(number) == before
        assert told[0]["plan"]["cleaner"]["backoff_ms"] < before.backoff_ms

        code, told, _ = invoke(capsys, "apply", *where, *goal)
        assert code == 0, told
        now = admin.cleaner_settings(number)
        # Planned anew, by how fast the machine is at the moment: one between two steps may be given another plan.
        planned = told[0]["plan"]
        assert now.backoff_ms == planned["cleaner"]["backoff_ms"] < before.backoff_ms
        assert now.dedupe_buffer_bytes <= before.dedupe_buffer_bytes
        assert now.dedupe_buffer_bytes == planned["cleaner"]["dedupe_buffer_bytes"]
        # A buffer is never made larger: other tests' topics may hold more than the present one has room for.
        assert now.keys_per_pass >= max(200, min(planned["offsets_max"], before.keys_per_pass))
        assert set(told[0]["brokers"][0]["changes"]) >= {"log.cleaner.backoff.ms"}

        admin.alter_broker(number, {"log.cleaner.backoff.ms": "777"})
        code, told, _ = invoke(capsys, "rollback", *where)
        assert code == ConfigError.exit_code
        assert "now 777" in str(told[0]["message"])
        assert len(told) == 1, "no topic was rolled back before that was found out"
        admin.alter_broker(number, {"log.cleaner.backoff.ms": str(now.backoff_ms)})

        code, told, _ = invoke(capsys, "rollback", *where)
        assert code == 0, told
        assert admin.cleaner_settings(number) == before
        assert admin.broker_overrides(number) == own
        code, told, _ = invoke(
            capsys, "rollback", "--brokers", broker.bootstrap, "--broker-settings", "--json"
        )
        assert told[0]["error"] == "ConfigError"
    finally:
        admin.close()
