"""The demonstration itself, on a slice of its input: everything in it is real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "examples/flights/demo.py"]
FLIGHTS = 4000

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_a_slice_of_the_demo_ends_with_every_answer_right(tmp_path: Path) -> None:
    command = [*DEMO, "--flights", str(FLIGHTS), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-3000:]
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["ok"] is True
    assert (last["records"], last["mismatches"]) == (FLIGHTS, 0)
    assert last["keys_compared"] > 1000
    assert last["keys_placed"] > 1000
    assert last["restore_seconds"] > 0
    assert last["repartition_seconds"] > 0
    assert last["changelog_bytes_before"] > 0
    assert last["changelog_bytes_after"] > 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "answers equal those of an independent batch computation" in page
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert all(step["seconds"] > 0 and step["sentence"] for step in report["steps"])
    assert not Path(report["folder"]).exists()


@pytest.mark.timeout(120)
def test_ctrl_c_stops_everything_and_says_so(tmp_path: Path) -> None:
    command = [*DEMO, "--flights", str(FLIGHTS), "--out", str(tmp_path)]
    demo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    log = tmp_path / "logs" / "workers-1.log"

    def has_started() -> bool:
        assert demo.poll() is None
        return log.exists() and "is running" in log.read_text()

    wait_until(has_started, "a worker to start")
    running = descendants(demo.pid)
    assert len(running) >= 4  # the broker, the supervisor and its two workers
    demo.send_signal(signal.SIGINT)
    text, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130
    last = json.loads(text.splitlines()[-1])
    assert (last["ok"], last["failure"]) == (False, "it was interrupted.")
    assert not [pid for pid in running if Path(f"/proc/{pid}/cmdline").exists()]


def descendants(pid: int) -> list[int]:
    """Processes below one, by the kernel's own list."""
    found = []
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:  # it ended since its parent was looked at
        return []
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # a thread that ended since it was listed
            continue
        for child in children:
            found += [int(child), *descendants(int(child))]
    return found
