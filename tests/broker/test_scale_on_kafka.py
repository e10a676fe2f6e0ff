"""Repartition on a real broker: kept whole, killed with SIGKILL and resumed, driven from the command line."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.locations import open_objects
from stateflow.cli.main import run
from stateflow.cli.scale import command
from stateflow.clock import SystemClock
from stateflow.errors import ConfigError, GenerationUnfinished, StillRunning
from stateflow.lab.applications.written import STEP, STORES, WrittenApp
from stateflow.log.kafka import KafkaCluster
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale.engine import InProcess
from stateflow.scale.progress_group import progress_group
from stateflow.scale.settings import ScaleSettings
from stateflow.scale.start import start
from stateflow.state.layout import index_bytes, prefixed_key, routing_key, window_key
from stateflow.testing.broker import TestBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

START_AND_WAIT_TO_BE_KILLED = """
import sys
from stateflow.clock import SystemClock
from stateflow.log.kafka import KafkaCluster
from stateflow.routing import RoutingTable
from stateflow.scale.engine import InProcess
from stateflow.scale.settings import ScaleSettings
from stateflow.scale.start import start

brokers, app = sys.argv[1:]
cluster = KafkaCluster(brokers)
settings = ScaleSettings(chunk_records_max=50)
start(cluster, app, RoutingTable.modulo(6).entry(), InProcess(cluster), SystemClock(), settings=settings)
"""


def written(cluster: KafkaCluster, partitions: int, changes: int = 400) -> WrittenApp:
    app = WrittenApp(cluster, f"scale-{uuid.uuid4().hex[:8]}", RoutingTable.modulo(partitions))
    app.create()
    rng = random.Random(1)
    keys = [f"key-{number}".encode() for number in range(100)]

    def value() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(20)

    app.write_state("totals", [(rng.choice(keys), value()) for _ in range(changes)])
    app.write_state(
        "hourly", [(window_key(rng.choice(keys), rng.randrange(4)), value()) for _ in range(changes)]
    )
    app.write_state(
        "recent",
        [(prefixed_key(rng.choice(keys), index_bytes(rng.randrange(3))), value()) for _ in range(changes)],
    )
    app.write_unread([(rng.choice(keys), b"read already", 1) for _ in range(30)])
    app.commit_inputs({partition: 50 + partition for partition in range(partitions)})
    app.write_unread([(rng.choice(keys), str(number).encode(), 100 + number) for number in range(60)])
    return app


def assert_everything_kept(app: WrittenApp, generation: int, routing: RoutingTable) -> None:
    for store in STORES:
        merged: dict[bytes, bytes] = {}
        for partition, state in app.found_state(store.name, generation).items():
            assert {routing.partition_of(routing_key(store.layout, key)) for key in state} <= {partition}
            merged.update(state)
        assert merged == app.expected[store.name]
    unread = [record for records in app.found_unread(generation).values() for record in records]
    assert sorted(int(record.value) for record in unread) == list(range(60))
    assert {record.timestamp_ms - int(record.value) for record in unread} == {100}


def test_out_and_in_again(cluster: KafkaCluster) -> None:
    app = written(cluster, 4)
    for generation, partitions in ((1, 6), (2, 3)):
        routing = RoutingTable.modulo(partitions)
        outcome = start(cluster, app.app, routing.entry(), InProcess(cluster, lanes=2), SystemClock())
        assert all(row.equal for row in outcome.audit)
        assert_everything_kept(app, generation, routing)
    assert {position.offset_next for position in app.committed_inputs(2).values()} == {0}
    old = cluster.topic_config(changelog_topic(app.app, "totals"))
    assert cluster.topic_config(changelog_topic(app.app, "totals", 2)) == old
    assert old["cleanup.policy"] == "compact"


def test_killed_with_sigkill_and_resumed(cluster: KafkaCluster, broker: TestBroker) -> None:
    app = written(cluster, 4, changes=3000)
    group = progress_group(app.app, 1)
    slots = [TopicPartition(changelog_topic(app.app, store.name, 1), 3) for store in STORES]
    process = subprocess.Popen([sys.executable, "-c", START_AND_WAIT_TO_BE_KILLED, broker.bootstrap, app.app])

    def has_begun() -> bool:
        assert process.poll() is None, "it ended before it could be killed"
        moved = cluster.committed(group, slots, stable=False)
        return slots[1] in moved and moved[slots[1]].offset_next > 0

    wait_until(has_begun, "the middle of the second store", every_seconds=0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert generations.preparing(generations.load_catalog(cluster, app.app)) is not None

    with pytest.raises(GenerationUnfinished, match="6 partitions"):
        start(cluster, app.app, RoutingTable.modulo(5).entry(), InProcess(cluster), SystemClock())
    settings = ScaleSettings(chunk_records_max=100)
    routing = RoutingTable.modulo(6)
    start(cluster, app.app, routing.entry(), InProcess(cluster), SystemClock(), settings=settings)
    assert_everything_kept(app, 1, routing)


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "processes"])
def test_the_command_line(
    cluster: KafkaCluster, broker: TestBroker, monkeypatch: pytest.MonkeyPatch, threads: bool
) -> None:
    monkeypatch.setattr("stateflow.cli.scale.PROCESSES_FROM_SLOTS", 1 << 30 if threads else 0)
    app = written(cluster, 3)

    def scale(*arguments: str) -> str:
        given = [arguments[0], "--app", app.app, "--brokers", broker.bootstrap, *arguments[1:]]
        result = CliRunner().invoke(command, given, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    planned = json.loads(scale("plan", "--partitions", "5", "--count", "--json"))
    assert (planned["partitions_from"], planned["partitions_to"]) == (3, 5)
    assert sum(row["keys"] for row in planned["partitions"] if row["name"] == "totals") == len(
        app.expected["totals"]
    )
    assert "3 → 5" in scale("start", "--partitions", "5", "--dry-run")
    assert json.loads(scale("status", "--json"))["generations"][0]["state"] == "active"

    outcome = json.loads(scale("start", "--partitions", "5", "--engine", "local", "--json"))
    assert outcome["engine"] == ("local" if threads else "processes")
    assert outcome["keys_total"] == sum(len(state) for state in app.expected.values())
    assert_everything_kept(app, 1, RoutingTable.modulo(5))

    status = scale("status")
    assert "retired" in status
    assert "20 of 20 ranges equal" in status
    assert f"{app.app}-{STEP}-repartition" in scale("finalize", "--dry-run")
    deleted = json.loads(scale("finalize", "--yes", "--json"))["deleted"]
    assert len(deleted) == len(STORES) + 1
    assert not set(deleted) & set(cluster.list_topics())
    assert scale("finalize", "--yes") == "Nothing to delete.\n"


@pytest.mark.parametrize(
    ("count", "exit_code"), [("3", 2), ("0", 2), ("-1", 2), ("1000000000", 2), ("100000", 17)]
)
def test_a_dry_run_refuses_what_the_change_itself_refuses(
    cluster: KafkaCluster, capfd: pytest.CaptureFixture[str], count: str, exit_code: int
) -> None:
    """A plan for a billion partitions ended with 0, and the change left an application that could not start.

    Whether brokers would create so many is not asked for a plan: that takes the right to create topics.
    """
    app = written(cluster, 3)
    errors = set()
    plan = [["plan"]] if exit_code == ConfigError.exit_code else []
    for verb in (*plan, ["start", "--dry-run"], ["start"]):
        target = ["--app", app.app, "--brokers", cluster.bootstrap, "--engine", "local"]
        assert run(["scale", *verb, *target, "--partitions", count]) == exit_code
        errors.add(capfd.readouterr().err.replace(f"scale {verb[0]}", "scale"))
    assert len(errors) == 1
    assert run(["scale", "status", "--app", app.app, "--brokers", cluster.bootstrap]) == 0
    assert "preparing" not in capfd.readouterr().out


def test_a_home_that_is_a_file_is_a_warning(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    app = written(cluster, 2)
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "home"))
    target = ["--app", app.app, "--brokers", cluster.bootstrap, "--engine", "local"]
    for verb in ("plan", "start"):
        assert run(["scale", verb, *target, "--partitions", "3"]) == 0
    assert "0 → 1 (active)" in capfd.readouterr().out


def test_images_of_before_are_named_and_removed_and_the_run_is_remembered(
    cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    app = written(cluster, 2)
    monkeypatch.setenv("STATEFLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STATEFLOW_IMAGES", str(tmp_path / "images"))
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "CURRENT").write_text("MANIFEST-000001\n")
    images = TaskImages(open_objects(str(tmp_path / "images")), app.app, 0, "by-0", SystemClock())
    images.publish(tmp_path / "checkpoint", {}, {})

    def told(*arguments: str) -> tuple[dict[str, Any], str]:
        given = [*arguments, "--app", app.app, "--brokers", cluster.bootstrap, "--json"]
        assert run(given) in (0, 50), "doctor may miss something on this machine"
        out, err = capfd.readouterr()
        return json.loads(out), err

    change = ("--partitions", "3", "--engine", "local")
    planned, _ = told("scale", "plan", *change)
    assert planned["images_left_behind"]["images"] == 1
    assert planned["predicted"]["seconds_low"] < planned["predicted"]["seconds_high"]
    _, said = told("scale", "start", *change)
    assert "1 image (16 B) at" in said
    (check,) = [check for check in told("doctor")[0]["checks"] if check["name"] == "images"]
    assert "1 image (16 B) of generation 0 cannot be used" in check["detail"]
    listed, _ = told("checkpoint", "list")
    assert (listed["images"], [row["generation"] for row in listed["outdated"]]) == ([], [0])
    assert sum(row["images"] for row in told("checkpoint", "gc", "--grace", "0s")[0]["removed"]) == 1
    assert told("checkpoint", "list")[0]["outdated"] == []
    again, _ = told("scale", "plan", "--partitions", "2", "--engine", "local")
    assert again["predicted"]["rests_on"] == f"the last repartition of {app.app} on this machine"


class Listener:
    """A worker that does nothing."""

    def on_assigned(self, partitions: object) -> None: ...

    def on_revoked(self, partitions: object) -> None: ...

    def on_lost(self, partitions: object) -> None: ...


def test_a_running_worker_is_refused(cluster: KafkaCluster) -> None:
    app = written(cluster, 2)
    member = cluster.group_consumer(app.app, [f"{app.app}-source"], Listener())
    try:
        wait_until(
            lambda: bool(cluster.group_members(app.app)),
            "a member",
            lambda: member.poll(1, 0.1),
            every_seconds=0,
        )
        with pytest.raises(StillRunning):
            start(cluster, app.app, RoutingTable.modulo(3).entry(), InProcess(cluster), SystemClock())
    finally:
        member.close()
