"""`stateflow up`, `status` and `down` as a user runs them: separate processes and one state file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stateflow.connectors.broker.processes import command_line

pytestmark = pytest.mark.broker


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables that keep the user's own broker out of it."""
    return {**os.environ, "STATEFLOW_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path)}


def stateflow(environment: dict[str, str], *arguments: str, code: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "stateflow.cli", *arguments, "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_detached_broker_outlives_its_shell_and_keeps_its_data(environment: dict[str, str]) -> None:
    assert stateflow(environment, "status") == {"running": False, "others": []}
    planned = stateflow(environment, "up", "--dry-run")
    assert planned["dry_run"] is True
    assert not Path(environment["STATEFLOW_HOME"]).exists()
    started = stateflow(environment, "up", "--detach", "--port", "0")
    try:
        status = stateflow(environment, "status")
        assert status["running"] is True
        assert status["bootstrap"] == started["bootstrap"]
        assert status["features"]["transaction.version"] == 2
        assert status["data_bytes"] > 0
        refused = stateflow(environment, "up", "--port", "0", code=44)
        assert refused["error"] == "StillRunning"
        checks = {check["name"]: check for check in stateflow(environment, "doctor")["checks"]}
        assert checks["broker"]["ok"] is True
        assert stateflow(environment, "down", "--dry-run")["stopped"] == started["bootstrap"]
        assert stateflow(environment, "status")["running"] is True
    finally:
        stopped = stateflow(environment, "down")
    assert stopped == {"stopped": started["bootstrap"], "dry_run": False}
    assert all(command_line(pid) is None for pid in started["pids"])
    assert (Path(started["data_dir"]) / "cluster.json").is_file()
    assert stateflow(environment, "down") == {"stopped": None, "dry_run": False}


def test_an_ephemeral_broker_leaves_nothing(environment: dict[str, str]) -> None:
    started = stateflow(environment, "up", "--detach", "--ephemeral", "--port", "0")
    assert Path(started["data_dir"]).is_dir()
    stateflow(environment, "down")
    assert not Path(started["data_dir"]).exists()


@pytest.mark.parametrize("how", ["Ctrl-C", "stateflow down"])
def test_a_broker_in_the_foreground_ends_in_order(environment: dict[str, str], how: str) -> None:
    command = [sys.executable, "-m", "stateflow.cli", "up", "--ephemeral", "--port", "0", "--json"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        started = json.loads(process.stdout.readline())
    assert started["owner_pid"] == process.pid
    if how == "Ctrl-C":
        process.send_signal(signal.SIGINT)
    else:
        stateflow(environment, "down")
    assert process.wait(60) == 0
    assert stateflow(environment, "status") == {"running": False, "others": []}
    assert all(command_line(pid) is None for pid in started["pids"])
    assert not Path(started["data_dir"]).exists()


def test_a_dead_broker_is_reported_and_replaced(environment: dict[str, str]) -> None:
    first = stateflow(environment, "up", "--detach", "--ephemeral", "--port", "0")
    for pid in first["pids"]:
        os.kill(pid, signal.SIGKILL)
    status = stateflow(environment, "status")
    assert status["running"] is False
    assert status["state"].startswith("dead")
    second = stateflow(environment, "up", "--detach", "--ephemeral", "--port", "0")
    try:
        assert second["pids"] != first["pids"]
        assert not Path(first["data_dir"]).exists()
    finally:
        stateflow(environment, "down")


def test_brokers_of_several_names_run_side_by_side(environment: dict[str, str]) -> None:
    started = {
        name: stateflow(environment, "up", "--detach", "--ephemeral", "--port", "0", "--name", name)
        for name in ("default", "blue")
    }
    try:
        assert started["blue"]["bootstrap"] != started["default"]["bootstrap"]
        status = stateflow(environment, "status")
        assert (status["name"], [it["name"] for it in status["others"]]) == ("default", ["blue"])
        assert stateflow(environment, "status", "--name", "blue")["features"]["transaction.version"] == 2
        assert stateflow(environment, "down")["stopped"] == started["default"]["bootstrap"]
        assert stateflow(environment, "status", "--name", "blue")["running"] is True
        assert stateflow({**environment, "STATEFLOW_UP": "blue"}, "status")["name"] == "blue"
    finally:
        stateflow(environment, "down")
        stopped = stateflow(environment, "down", "--name", "blue")
    assert stopped["stopped"] == started["blue"]["bootstrap"]
    assert not Path(started["blue"]["data_dir"]).exists()
