"""Local state that is held, foreign, damaged, or on a disk that is full."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.broker.command_site import Process, Site
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

TASK = "g0/by-digit-0"
WITH_SMALL_FILES = """
import resource, sys
from stateflow.cli.main import main
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
main()
"""


@pytest.fixture
def counted(site: Site) -> Site:
    """A site whose application has counted three numbers and closed."""
    site.topic("in", "out")
    site.feed([1, 11, 2])
    assert site.drained().code == 0
    assert site.counted() == {1: 2, 2: 1}
    return site


def task_folder(site: Site) -> Path:
    """Where the counts are kept."""
    folder = site.state / site.name / TASK
    assert folder.is_dir()
    return folder


def test_state_that_a_running_worker_holds(counted: Site) -> None:
    worker = counted.begin("run", counted.digits)
    try:
        worker.until("task by-digit-0 is running")
        ended = counted.type("restore", counted.digits, "--json")
        assert (ended.code, ended.error["error"]) == (30, "StateLocked")
        assert ended.error["fields"]["pid"] == worker.pid
        assert "--state-dir" in ended.error["action"]
    finally:
        worker.close()


def test_state_of_somebody_else(counted: Site) -> None:
    identity = task_folder(counted) / "identity.json"
    own = json.loads(identity.read_text())
    for field, value in {"app": "somebody-else", "cluster_id": "another-cluster", "format": 99}.items():
        identity.write_text(json.dumps({**own, field: value}))
        for line in (["run", counted.digits, "--until-drained"], ["restore", counted.digits]):
            ended = counted.type(*line, "--json")
            assert (ended.code, ended.error["error"]) == (31, "StateForeign")
            assert repr(value) in ended.error["message"]
            assert ended.error["fields"]["path"] == str(task_folder(counted))
            assert "--state-dir" in ended.error["action"]
    identity.write_text(json.dumps(own))

    config = task_folder(counted) / "db" / "rocksdict-config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "raw_mode": False}))
    ended = counted.type("restore", counted.digits, "--workers", "1", "--json")
    assert (ended.code, ended.error["error"]) == (31, "StateForeign")
    assert "do not open it" in ended.error["action"]


def test_a_damaged_database_is_set_aside_and_rebuilt(counted: Site) -> None:
    """First one that cannot be opened, then one whose damage shows when it is read."""
    database = task_folder(counted) / "db"
    (database / "CURRENT").write_text("no manifest\n")
    counted.feed([21])
    assert counted.drained().code == 0
    assert counted.counted() == {1: 3, 2: 1}
    assert task_folder(counted).with_name("by-digit-0.damaged").is_dir()

    tables = list(database.glob("*.sst"))
    assert tables, "closing flushes"
    for table in tables:
        damaged = bytearray(table.read_bytes())
        damaged[:48] = bytes(48)
        table.write_bytes(damaged)
    counted.feed([31])
    ended = counted.drained(None, "--json")
    if ended.code != 0:  # found while reading, not while opening
        assert (ended.code, ended.error["error"]) == (32, "StateCorrupt")
        assert "start again" in ended.error["action"]
        assert counted.drained().code == 0
    assert counted.counted() == {1: 4, 2: 1}


def test_a_disk_that_takes_no_more(counted: Site) -> None:
    """Files that may not grow stand for a disk that is full: writing fails just so, with another number."""
    elsewhere = ["--to", str(counted.place / "fresh")]
    for limit_bytes in (0, 2000):  # not even the first file; the database's files
        command = [sys.executable, "-c", WITH_SMALL_FILES, str(limit_bytes), "restore", counted.digits]
        process = Process([*command, *elsewhere, "--workers", "1"], Path("/dev/null"))
        assert process.ended() == 33
    assert counted.type("restore", counted.digits, *elsewhere).code == 0

    in_the_way = counted.place / "a-file"
    in_the_way.write_text("in the way")
    counted.set(STATEFLOW_STATE_DIR=str(in_the_way))
    for line in (["run", counted.digits, "--until-drained"], ["restore", counted.digits]):
        ended = counted.type(*line, "--json")
        assert (ended.code, ended.error["error"]) == (2, "ConfigError")
        assert str(in_the_way) in ended.error["message"]
        assert "--state-dir" in ended.error["action"]


def shows(site: Site, counts: dict[int, int]) -> bool:
    """Whether these are the newest counts."""
    return site.counted() == counts


@pytest.mark.parametrize("gone", ["app", "all"])
def test_state_that_is_removed_while_a_worker_has_it_is_rebuilt(counted: Site, gone: str) -> None:
    worker = counted.begin("run", counted.digits)
    try:
        worker.until("task by-digit-0 is running")
        shutil.rmtree(counted.state if gone == "all" else counted.state / counted.name)
        for round_ in range(1, 4):  # the disk is not needed for every one of them
            counted.feed([11 + 10 * round_])
            wait_until(
                partial(shows, counted, {1: 2 + round_, 2: 1}),
                lambda: worker.said,
                worker.still_runs,
            )
        worker.until("task by-digit-0 is running", times=2)
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0
    finally:
        worker.close()
    assert task_folder(counted)
    assert "Traceback" not in worker.said


def test_a_worker_whose_state_is_removed_still_stops(counted: Site) -> None:
    worker = counted.begin("run", counted.digits)
    try:
        worker.until("task by-digit-0 is running")
        shutil.rmtree(counted.state)
        worker.send(signal.SIGTERM)
        assert worker.ended() == 0, worker.said
    finally:
        worker.close()
    counted.feed([21])
    assert counted.drained().code == 0
    assert counted.counted() == {1: 3, 2: 1}
