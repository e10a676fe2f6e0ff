"""A sample of the crash matrix in real processes on a real broker, one case of each kind of fault and recovery."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stateflow.lab.faults.matrix.case import Result
from stateflow.lab.faults.matrix.fork_server import ForkServer
from stateflow.lab.faults.matrix.plan import full_plan, only
from stateflow.lab.faults.matrix.run import run_matrix
from stateflow.testing.broker import TestBroker
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

SEED = 11
SAMPLE = (
    "commit.before_records:kill",
    "commit.after_end:stop",
    "commit.before_end_txn:raise",
    "takeover.after_values:kill",
    "restore.within_clear:kill",
    "image.before_manifest:kill",
    "install.within_swap:kill",
    "network.dies:hold-and-cut",
)


def test_a_sample_of_the_matrix_loses_nothing_and_repeats_nothing(broker: TestBroker, tmp_path: Path) -> None:
    cases = [case for case in only(full_plan(SEED), SAMPLE) if case.repetition == 0]
    told: list[Result] = []
    results = run_matrix(cases, broker.bootstrap, tmp_path, told.append, lanes=4)
    assert sorted(map(str, (one.case for one in results))) == sorted(map(str, cases))
    assert told == results
    for result in results:
        assert not result.is_bad, f"{result.case}: {result.why}\n{result.said}"
        assert result.injected, f"{result.case} was not injected"
    assert not list(tmp_path.iterdir()), "disks and logs were left behind"


def test_a_fork_server_kills_its_children_when_it_closes_even_stopped_ones(tmp_path: Path) -> None:
    with ForkServer() as fork_server:
        log = tmp_path / "log"
        pids = [fork_server.start(["up", "--help"], {}, tmp_path, log) for _ in range(2)]
        wait_until(lambda: fork_server.state(pids[0]).code is not None, "the end of the command")
        assert fork_server.state(pids[0]).code == 0
        hung = fork_server.start(["study", "faults", "--brokers", "127.0.0.1:1"], {}, tmp_path, log)
        fork_server.signal(hung, signal.SIGSTOP)
        wait_until(lambda: fork_server.state(hung).stopped, "the command to be stopped")
    with pytest.raises(ProcessLookupError):
        os.kill(hung, 0)
    assert "Usage" in log.read_text()


def test_ctrl_c_ends_a_study_without_leaving_anything(broker: TestBroker, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "stateflow.cli",
        "study",
        "faults",
        "--only",
        "commit",
        "--seed",
        "1",
        "--json",
    ]
    where = ["--brokers", broker.bootstrap, "--state-dir", str(tmp_path / "state")]
    study = subprocess.Popen([*command, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(
            lambda: study.poll() is not None or any(tmp_path.glob("state/*/w0/*")), "the first case to begin"
        )
        assert study.poll() is None, study.communicate()
        study.send_signal(signal.SIGINT)
        out, err = study.communicate(timeout=30)
    finally:
        study.kill()
    assert study.returncode == 130, err
    assert json.loads(out)["error"] == "Interrupted"
    assert "Traceback" not in err
    assert not list((tmp_path / "state").iterdir()), "a case left its place behind"
