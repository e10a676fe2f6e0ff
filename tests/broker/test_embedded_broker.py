"""The embedded broker: it serves, keeps or drops its data, stops in order and leaves no orphan."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.features import finalized_features
from stateflow.connectors.broker.java import find_java
from stateflow.connectors.broker.node import JVM_VARIABLE
from stateflow.connectors.broker.processes import command_line
from stateflow.errors import BrokerUnreachable, ConfigError, SetupError, TopicMissing
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.record import TopicPartition as Place
from stateflow.testing.broker import TestBroker
from tests.class_archive import archive_arguments
from tests.shared_broker import RunBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

PARENT = """
import sys, time
from stateflow.connectors.broker import EmbeddedKafka
cluster = EmbeddedKafka(sys.argv[1] if len(sys.argv) > 1 else None).start()
print(cluster.pids[0], cluster.data_dir, flush=True)
time.sleep(600)
"""


def quiet(bootstrap: str, **settings: str | bool) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": bootstrap, "log_level": 0, **settings}


def create_topic(bootstrap: str, name: str, replicas: int = 1, *, partitions: int = 1) -> None:
    admin = AdminClient(quiet(bootstrap))
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(20)


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer(quiet(bootstrap, acks="all"))
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**quiet(bootstrap), "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() or b"" for message in consumer.consume(100, 0.5) if not message.error()]
    consumer.close()
    return found


def test_serves_transactions(broker: TestBroker) -> None:
    create_topic(broker.bootstrap, "embedded-transactions")
    producer = Producer(quiet(broker.bootstrap, **{"transactional.id": "embedded-transactions"}))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("embedded-transactions", b"one", partition=0)
    producer.commit_transaction(30)
    assert read_all(broker.bootstrap, "embedded-transactions", 1) == [b"one"]


def test_features_are_those_of_kafka_4(broker: RunBroker) -> None:
    if broker.pid is None:
        pytest.skip("this run uses a broker that it did not start")
    host, _, port = broker.bootstrap.partition(":")
    features = finalized_features(host, int(port))
    assert features["transaction.version"] == 2
    assert features["group.version"] == 1


def test_a_topic_is_never_made_by_misspelling_it(broker: TestBroker) -> None:
    admin = AdminClient(quiet(broker.bootstrap))
    admin.list_topics("embedded-misspelt", timeout=10)
    assert "embedded-misspelt" not in admin.list_topics(timeout=10).topics


def test_kept_data_are_there_again_on_other_ports(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "kept") as first:
        create_topic(first.bootstrap, "kept")
        produce(first.bootstrap, "kept", [b"a", b"b"])
        first_bootstrap = first.bootstrap
        assert (first.log_dirs[0] / "kept-0").is_dir()
    assert "shut down completed" in first.nodes[0].output_tail(200)
    with EmbeddedKafka(tmp_path / "kept") as second:
        assert second.bootstrap != first_bootstrap
        assert read_all(second.bootstrap, "kept", 2) == [b"a", b"b"]
    assert not second.nodes[0].is_running


def test_ephemeral_data_are_gone_and_overrides_are_in_force() -> None:
    with EmbeddedKafka(overrides={"log.retention.ms": 12345}) as cluster:
        folder = cluster.data_dir
        assert folder.is_dir()
        resource = ConfigResource(ResourceType.BROKER, "1")
        admin = AdminClient(quiet(cluster.bootstrap))
        settings = admin.describe_configs([resource])[resource].result(20)
        assert settings["log.retention.ms"].value == "12345"
        assert settings["auto.create.topics.enable"].value == "false"
    assert not folder.exists()


def test_a_failed_start_shows_why_and_leaves_nothing() -> None:
    cluster = EmbeddedKafka(overrides={"num.io.threads": "many"})
    with pytest.raises(SetupError, match=r"num\.io\.threads"):
        cluster.start()
    assert not cluster.data_dir.exists()
    assert not cluster.nodes[0].is_running


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "shared") as first:
        second = EmbeddedKafka(tmp_path / "shared")
        with pytest.raises(SetupError, match="in use by another cluster"):
            second.start()
        create_topic(first.bootstrap, "undisturbed")
    with EmbeddedKafka(tmp_path / "shared") as third:
        assert "undisturbed" in AdminClient(quiet(third.bootstrap)).list_topics(timeout=10).topics


def test_a_folder_of_another_size_is_refused(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path / "one"):
        pass
    with pytest.raises(ConfigError, match="cluster of 1 brokers, not 3"):
        EmbeddedKafka(tmp_path / "one", brokers=3).start()


def test_a_taken_port_is_named(broker: TestBroker) -> None:
    port = int(broker.bootstrap.split(",")[0].rpartition(":")[2])
    with pytest.raises(SetupError, match=f"Port {port}"):
        EmbeddedKafka(port=port).start()


def test_a_killed_broker_comes_back_with_what_it_acknowledged() -> None:
    with EmbeddedKafka() as cluster:
        create_topic(cluster.bootstrap, "survivor")
        produce(cluster.bootstrap, "survivor", [b"before"])
        bootstrap, pid = cluster.bootstrap, cluster.pids[0]
        cluster.nodes[0].kill()
        assert command_line(pid) is None
        cluster.restart_node(1)
        assert cluster.bootstrap == bootstrap
        assert cluster.pids[0] != pid
        assert read_all(bootstrap, "survivor", 1) == [b"before"]


@pytest.mark.slow
def test_three_brokers_lose_one_and_go_on() -> None:
    with EmbeddedKafka(brokers=3) as cluster:
        create_topic(cluster.bootstrap, "replicated", replicas=3)
        create_topic(cluster.bootstrap, "spread", partitions=3)
        admin = AdminClient(quiet(cluster.bootstrap))
        leader = leaders_of(admin, "replicated", 1)[0]
        lost = leaders_of(admin, "spread", 3).index(leader)
        cluster.nodes[leader - 1].kill()
        produce(cluster.bootstrap, "replicated", [b"without the first leader"])
        assert_waits_for_a_leader(cluster.bootstrap, Place("spread", lost))
        cluster.restart_node(leader)
        assert read_all(cluster.bootstrap, "replicated", 1) == [b"without the first leader"]
        assert len(set(cluster.log_dirs)) == 3


def leaders_of(admin: AdminClient, topic: str, partitions: int) -> list[int]:
    """The broker that leads each of a topic's partitions, once a broker tells of all of them."""
    leaders: list[int] = []

    def are_told() -> bool:
        told = admin.list_topics(topic, timeout=10).topics[topic].partitions
        leaders[:] = [int(told[number].leader) for number in sorted(told)]
        return len(leaders) == partitions and min(leaders) > 0

    wait_until(are_told, f"the leaders of {topic}")
    return leaders


def assert_waits_for_a_leader(bootstrap: str, place: Place) -> None:
    """A partition without a leader is no missing one: it is waited for, and no person needs to act."""
    log = KafkaCluster(bootstrap, options=KafkaOptions(request_timeout_seconds=3.0))
    with pytest.raises(BrokerUnreachable):
        log.ranges([place])
    with pytest.raises(TopicMissing):
        log.ranges([Place("never-made", 0)])


def test_kill_9_of_the_parent_leaves_no_broker_and_no_data(tmp_path: Path) -> None:
    parent, pid, folder = start_parent(tmp_path)
    parent.kill()
    parent.wait()
    wait_until(lambda: command_line(pid) is None, "the end of the broker, whose parent has gone")
    wait_until(lambda: not folder.exists(), "its data to go")


def test_kill_9_of_the_parent_ends_a_kept_broker_in_order(tmp_path: Path) -> None:
    parent, pid, folder = start_parent(tmp_path, str(tmp_path / "kept"))
    parent.kill()
    parent.wait()
    wait_until(lambda: command_line(pid) is None, "the end of the broker, whose parent has gone")
    assert "shut down completed" in (folder / "node-1" / "broker.out").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only the Linux kernel ends a child with its parent")
def test_kill_9_of_the_guard_too_leaves_no_broker(tmp_path: Path) -> None:
    parent, pid, _ = start_parent(tmp_path, str(tmp_path / "kept"))
    guard = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert "guard.py" in (command_line(guard) or "")
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: command_line(pid) is None, "the end of the broker, whose guard has gone")
    parent.kill()
    parent.wait()


def start_parent(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], int, Path]:
    """A process of its own that runs a broker; returns it, the broker's process id and its data folder."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    pid, data_dir = parent.stdout.readline().split()
    parent.stdout.close()
    assert command_line(int(pid)) is not None
    return parent, int(pid), Path(data_dir)


def test_arguments_of_the_environment_reach_the_java_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JVM_VARIABLE, f"{os.environ[JVM_VARIABLE]} '-Dsaid.so=in two words'")
    with EmbeddedKafka() as cluster:
        said = command_line(cluster.pids[0]) or ""
    assert "-Dsaid.so=in two words" in said
    assert "-XX:SharedArchiveFile=" in said, "as tests/conftest.py has it"


@pytest.mark.parametrize("content", [None, b"", b"no archive" * 1_000])
def test_java_starts_without_an_archive_that_it_cannot_use(tmp_path: Path, content: bytes | None) -> None:
    archive = tmp_path / "classes.jsa"
    if content is not None:
        archive.write_bytes(content)
    java = str(find_java().executable)
    started = subprocess.run([java, *shlex.split(archive_arguments(archive)), "-version"], check=False)
    assert started.returncode == 0
