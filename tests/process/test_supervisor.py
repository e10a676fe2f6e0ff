"""The supervisor over real child processes: restarts, gives up, stops all, leaves no orphan."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stateflow.clock import SystemClock
from stateflow.runtime.supervisor import Supervisor, WorkerFailed
from tests.waiting import wait_until

CHILD = """
import sys, threading
from pathlib import Path
from stateflow.runtime.supervisor import stop_with_parent
stopped = threading.Event()
stop_with_parent(stopped.set)
Path(sys.argv[1]).write_text("started")
stopped.wait()
Path(sys.argv[1]).write_text("stopped cleanly")
"""


def command(folder: Path, body: str = CHILD) -> Callable[[str], list[str]]:
    return lambda name: [sys.executable, "-c", body, str(folder / name)]


def running(supervisor: Supervisor) -> threading.Thread:
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    return thread


def says(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def test_stop_lets_every_worker_close_cleanly(tmp_path: Path) -> None:
    supervisor = Supervisor(command(tmp_path), 2, SystemClock())
    thread = running(supervisor)
    wait_until(lambda: all(says(tmp_path / name, "started") for name in ("w0", "w1")), "both workers")
    supervisor.stop()
    thread.join(20)
    assert [(tmp_path / name).read_text() for name in ("w0", "w1")] == ["stopped cleanly"] * 2


def test_a_killed_worker_is_started_again(tmp_path: Path) -> None:
    supervisor = Supervisor(command(tmp_path), 1, SystemClock())
    thread = running(supervisor)
    wait_until(lambda: says(tmp_path / "w0", "started"), "the worker")
    (tmp_path / "w0").unlink()
    first = supervisor.pids["w0"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: says(tmp_path / "w0", "started"), "its successor")
    assert supervisor.pids["w0"] != first
    supervisor.stop()
    thread.join(20)


def test_a_worker_that_was_taken_over_is_started_again(tmp_path: Path) -> None:
    fenced_once = f"""
import sys
from pathlib import Path
if not Path(sys.argv[1] + ".fenced").exists():
    Path(sys.argv[1] + ".fenced").touch()
    sys.exit(15)
{CHILD}"""
    supervisor = Supervisor(command(tmp_path, fenced_once), 1, SystemClock())
    thread = running(supervisor)
    wait_until(lambda: says(tmp_path / "w0", "started"), "the second start")
    supervisor.stop()
    thread.join(20)
    assert (tmp_path / "w0").read_text() == "stopped cleanly"


def test_a_worker_that_ends_with_an_error_ends_all(tmp_path: Path) -> None:
    failing = "import sys; sys.exit(22)"
    supervisor = Supervisor(
        lambda name: [sys.executable, "-c", failing if name == "w1" else CHILD, str(tmp_path / name)],
        2,
        SystemClock(),
    )
    with pytest.raises(WorkerFailed, match="w1 ended with exit code 22") as raised:
        supervisor.run()
    assert raised.value.exit_code == 22


def test_a_worker_that_keeps_crashing_is_given_up(tmp_path: Path) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(WorkerFailed, match="killed by signal 9"):
        Supervisor(command(tmp_path, crash), 1, SystemClock()).run()


def test_workers_stop_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    parent = textwrap.dedent(
        f"""
        import sys
        from stateflow.clock import SystemClock
        from stateflow.runtime.supervisor import Supervisor
        child = {CHILD!r}
        Supervisor(lambda name: [sys.executable, "-c", child, {str(tmp_path)!r} + "/" + name], 1, SystemClock()).run()
        """
    )
    process = subprocess.Popen([sys.executable, "-c", parent])
    wait_until(lambda: says(tmp_path / "w0", "started"), "the worker")
    process.kill()
    process.wait()
    wait_until(lambda: says(tmp_path / "w0", "stopped cleanly"), "the worker to notice")


def test_a_worker_that_watches_its_parent_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    """The thread that waits for the parent's end must not be in the way of the interpreter's."""
    failing = (
        "import sys\nfrom stateflow.runtime.supervisor import stop_with_parent\n"
        "stop_with_parent(lambda: None)\nsys.exit(20)"
    )
    with pytest.raises(WorkerFailed) as raised:
        Supervisor(lambda _: [sys.executable, "-c", failing], 1, SystemClock()).run()
    assert raised.value.exit_code == 20
