"""Broker properties, the record of the running broker, and the choice of the test broker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stateflow.connectors.broker.distribution import KAFKA_JARS
from stateflow.connectors.broker.ivy import module_xml
from stateflow.connectors.broker.node import random_id
from stateflow.connectors.broker.running import (
    RunningBroker,
    forget_running,
    found_broker,
    load_running,
    save_running,
)
from stateflow.connectors.broker.settings import NodePorts, node_settings, properties_text
from stateflow.errors import BrokerUnreachable, ConfigError, SetupError
from stateflow.testing.broker import open_test_broker

PORTS = [NodePorts(client=9000 + n, controller=9100 + n) for n in range(3)]


def test_one_broker_replicates_nothing() -> None:
    settings = node_settings(1, PORTS[:1], Path("/log"), {})
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9100"
    assert settings["transaction.state.log.replication.factor"] == "1"
    assert settings["log.dirs"] == "/log"


def test_three_brokers_replicate_threefold() -> None:
    settings = node_settings(2, PORTS, Path("/log"), {})
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9001"
    assert settings["controller.quorum.voters"].split(",")[2] == "3@127.0.0.1:9102"
    assert settings["default.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == "2"


def test_overrides_win() -> None:
    settings = node_settings(1, PORTS[:1], Path("/log"), {"num.io.threads": 1, "node.id": 9})
    assert (settings["num.io.threads"], settings["node.id"]) == ("1", "9")


def test_properties_escape_what_would_break_a_line() -> None:
    assert properties_text({"a": "C:\\x\ny"}) == "a=C:\\\\x\\ny\n"


def test_ids_are_kafkas() -> None:
    ids = {random_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)


def test_locked_jars_are_complete_and_pinned() -> None:
    assert {jar.artifact for jar in KAFKA_JARS.jars} >= {
        "kafka_2.13",
        "kafka-clients",
        "kafka-server",
        "argparse4j",
    }
    for jar in KAFKA_JARS.jars:
        assert len(bytes.fromhex(jar.sha256)) == 32
        assert jar.size_bytes > 1000
        assert not any(mark in jar.version for mark in "[(,)]+*"), "a range is not a pin"


def test_ivy_is_asked_for_exactly_the_artifacts() -> None:
    xml = module_xml([("org.a", "b", "1"), ('q"uote', "c", "2")])
    assert xml.count("<dependency ") == 2
    assert xml.count('transitive="false"') == 2
    assert "q\"uote'" in xml


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def record(pid: int, data_dir: str) -> RunningBroker:
    return RunningBroker(
        bootstrap="127.0.0.1:1",
        version="4.3.1",
        pids=(pid,),
        owner_pid=None,
        data_dir=data_dir,
        ephemeral=False,
    )


def test_the_record_is_read_as_it_was_written(home: Path) -> None:
    assert load_running() is None
    written = record(os.getpid(), "/data")
    save_running(written)
    assert load_running() == written
    assert [path.name for path in home.iterdir()] == ["broker.json"]
    forget_running()
    forget_running()
    assert load_running() is None


def test_a_process_id_that_means_another_program_is_not_the_broker(home: Path) -> None:
    save_running(record(os.getpid(), "/no/such/folder/on/our/command/line"))
    assert found_broker() is None


def test_without_docker_a_broker_in_docker_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("testcontainers")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with (
        pytest.raises(SetupError, match=r"could not run apache/kafka:4\.3\.1") as caught,
        open_test_broker("docker"),
    ):
        pass
    assert "Start Docker" in caught.value.action


def test_the_test_broker_must_be_named_rightly_and_answer() -> None:
    with pytest.raises(ConfigError, match="STATEFLOW_TEST_BROKER"), open_test_broker("somewhere"):
        pass
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"), open_test_broker("127.0.0.1:1"):
        pass
