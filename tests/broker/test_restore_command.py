"""`stateflow restore` and `stateflow state` against a real broker: catalog only, no user code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import (
    GenerationEntry,
)
from stateflow.codec.scalar import Integer
from stateflow.errors import (
    CatalogMissing,
    ConfigError,
    GenerationUnfinished,
    Interrupted,
    StateLocked,
    TopicMissing,
    TopicRecreated,
)
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster
from tests.broker.catalog_site import KEYS, PARTITIONS, Application, at, stateflow
from tests.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def application(cluster: KafkaCluster) -> Application:
    return Application(cluster)


def test_a_dry_run_says_what_it_would_do_and_touches_nothing(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = at(cluster, application, "--to", str(tmp_path / "state"))
    found = stateflow(capfd, "restore", *where, "--dry-run")
    plan = found["plan"]
    assert isinstance(plan, list)
    assert [(row["task"], row["store"], row["action"]) for row in plan] == [
        (f"by-{p}", store, "replay") for p in range(PARTITIONS) for store in ("counts", "hourly", "seen")
    ]
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_restore_gives_the_newest_value_of_every_key(
    cluster: KafkaCluster,
    application: Application,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    workers: str,
) -> None:
    where = at(cluster, application, "--to", str(tmp_path))
    found = stateflow(capfd, "restore", *where, "--workers", workers)
    assert found["tasks"] == PARTITIONS
    assert found["records"] == 5 * (3 * len(KEYS) + PARTITIONS)
    assert application.counts(tmp_path) == application.truth["counts"]

    again = stateflow(capfd, "restore", *where)
    assert again["records"] == 0
    plan = again["plan"]
    assert isinstance(plan, list)
    assert {row["action"] for row in plan} == {"reuse"}


def test_one_partition_alone(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = at(cluster, application, "--to", str(tmp_path))
    found = stateflow(capfd, "restore", *where, "--partition", "1")
    assert found["tasks"] == 1
    assert [path.name for path in (tmp_path / application.id / "g0").iterdir()] == ["by-1"]
    missing = stateflow(capfd, "restore", *where, "--partition", "7", exit_code=ConfigError.exit_code)
    assert "partition 7" in str(missing["message"])


def test_state_is_read_while_a_worker_holds_it(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stateflow(capfd, "restore", *at(cluster, application, "--to", str(tmp_path)), "--workers", "1")
    key = KEYS[8]
    held = application.opened(tmp_path, application.partition(key))
    try:
        where = at(cluster, application, "--state-dir", str(tmp_path))
        listed = stateflow(capfd, "state", "list", "--state-dir", str(tmp_path), "--app", application.id)
        stores = listed["stores"]
        assert isinstance(stores, list)
        assert len(stores) == 3 * PARTITIONS
        pids = {row["task"]: row["pid"] for row in stores}
        assert pids[f"by-{application.partition(key)}"] == os.getpid()

        counted = stateflow(capfd, "state", "get", "counts", key, *where)["rows"]
        assert counted == [{"task": held.directory.identity.task, "key": key, "value": 8 * 4}]
        windows = stateflow(capfd, "state", "get", "hourly", key, *where)["rows"]
        assert isinstance(windows, list)
        assert [(row["window_start_ms"], row["value"]) for row in windows] == [
            (3_600_000 * i, i) for i in range(5)
        ]
        elements = stateflow(capfd, "state", "get", "seen", key, *where)["rows"]
        assert isinstance(elements, list)
        assert [(row["index"], row["value"]) for row in elements] == [(i, {"round": i}) for i in range(5)]

        scanned = stateflow(capfd, "state", "scan", "counts", "--limit", "10000", *where)
        rows = scanned["rows"]
        assert isinstance(rows, list)
        assert {row["key"]: row["value"] for row in rows} == application.truth["counts"]
        assert scanned["more"] is False
        assert stateflow(capfd, "state", "scan", "counts", "--limit", "2", *where)["more"] is True

        refused = stateflow(
            capfd,
            "restore",
            *at(cluster, application, "--to", str(tmp_path)),
            exit_code=StateLocked.exit_code,
        )
        assert f"process {os.getpid()}" in str(refused["message"])
        unknown = stateflow(capfd, "state", "get", "nothing", "k", *where, exit_code=ConfigError.exit_code)
        assert "counts, hourly, seen" in str(unknown["action"])
    finally:
        held.close()


def test_a_damaged_store_is_set_aside_and_replayed(
    cluster: KafkaCluster, application: Application, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = at(cluster, application, "--to", str(tmp_path))
    stateflow(capfd, "restore", *where, "--workers", "1")
    database = tmp_path / application.id / "g0" / "by-0" / "db"
    for file in database.glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[len(data) // 4] ^= 0xFF
        file.write_bytes(data)
    (database / "CURRENT").write_bytes(b"garbage")
    stateflow(capfd, "restore", *where, "--workers", "1")
    assert application.counts(tmp_path) == application.truth["counts"]
    assert (tmp_path / application.id / "g0" / "by-0.damaged").is_dir()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_stops_cleanly_and_the_next_one_goes_on(
    cluster: KafkaCluster, tmp_path: Path, workers: str
) -> None:
    application = Application(cluster)
    writer = cluster.writer()
    keys = [b"%06d" % i for i in range(20_000)]
    ones = [Integer.encode(1)] * len(keys)
    for _ in range(60):
        writer.send_many(application.topics["counts"], keys, ones, partitions=0)
    writer.commit()
    writer.close()
    command = [
        sys.executable,
        "-m",
        "stateflow.cli",
        "restore",
        *at(cluster, application, "--to", str(tmp_path)),
    ]
    child = subprocess.Popen(
        [*command, "--workers", workers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    marker = tmp_path / application.id / "g0" / "by-0" / "db"
    wait_until(
        lambda: any(marker.glob("*.sst")) or child.poll() is not None, "files of a store", every_seconds=0.01
    )
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == Interrupted.exit_code, (out, err)
    assert "goes on from where it was" in err
    assert "Traceback" not in err

    dry = subprocess.run([*command, "--dry-run", "--json"], capture_output=True, text=True, check=True)
    plan = {(row["task"], row["store"]): row for row in json.loads(dry.stdout)["plan"]}
    assert plan["by-0", "counts"]["action"] == "tail"
    subprocess.run(command, capture_output=True, text=True, check=True)
    stores = application.opened(tmp_path, 0)
    assert stores.reader("counts").get(b"019999") == Integer.encode(1)
    stores.close()


def test_mistakes_are_told(cluster: KafkaCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    where = ("--brokers", cluster.bootstrap, "--to", str(tmp_path))
    stateflow(capfd, "restore", "--app", "never-ran", *where, exit_code=CatalogMissing.exit_code)
    stateflow(capfd, "restore", *where, exit_code=ConfigError.exit_code)

    application = Application(cluster)
    control = ControlTopic(cluster, application.id)
    first = application.topics["counts"]
    cluster.delete([first])
    stateflow(capfd, "restore", "--app", application.id, *where, exit_code=TopicMissing.exit_code)
    cluster.create([TopicSpec(first, PARTITIONS, config={"cleanup.policy": "compact"})])
    found = stateflow(capfd, "restore", "--app", application.id, *where, exit_code=TopicRecreated.exit_code)
    assert first in str(found["message"])

    preparing = GenerationEntry(generation=1, state="preparing", routing=application.catalog.active.routing)
    control.write_generations([preparing])
    with pytest.raises(GenerationUnfinished):
        control.ensure(application.catalog)


def test_several_workers_that_start_at_once_agree_on_one_catalog(cluster: KafkaCluster) -> None:
    application = Application(cluster)
    code = f"""
from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import *
from stateflow.log.kafka import connect
import sys, msgspec
cluster = connect({cluster.bootstrap!r})
control = ControlTopic(cluster, {application.id!r})
found = control.load()
extra = msgspec.structs.replace(found.stores["counts"], name="extra-" + sys.argv[1])
print(len(control.write([extra]).stores))
"""
    children = [subprocess.Popen([sys.executable, "-c", code, str(i)]) for i in range(4)]
    assert [child.wait(timeout=120) for child in children] == [0] * 4
    assert len(ControlTopic(cluster, application.id).load().stores) == 3 + 4
