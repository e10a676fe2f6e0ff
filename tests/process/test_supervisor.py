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
from stateflow.runtime.process.supervisor import Supervisor, WorkerFailed
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

CHILD = """
import sys, threading
from pathlib import Path
from stateflow.runtime.process.supervisor import stop_with_parent
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
    assert not thread.is_alive()
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
    assert not thread.is_alive()


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
    assert not thread.is_alive()
    assert (tmp_path / "w0").read_text() == "stopped cleanly"


class FastClock(SystemClock):
    """Time that flies: pauses that grow to minutes are over within seconds."""

    def monotonic_seconds(self) -> float:
        return 20 * super().monotonic_seconds()


def failing_at_first(times: int, how: str) -> str:
    """A worker that ends ``how`` at its first starts."""
    return f"""
import os, signal, sys
from pathlib import Path
failed = Path(sys.argv[1] + ".failed")
count = int(failed.read_text()) if failed.exists() else 0
if count < {times}:
    failed.write_text(str(count + 1))
    {how}
{CHILD}"""


def test_a_worker_that_meets_no_broker_is_started_again_until_it_does(tmp_path: Path) -> None:
    """More often than a crash would be borne, and the others are not disturbed."""
    waiting = failing_at_first(8, "sys.exit(10)")
    supervisor = Supervisor(
        lambda name: [sys.executable, "-c", waiting if name == "w1" else CHILD, str(tmp_path / name)],
        2,
        FastClock(),
    )
    undisturbed = supervisor.pids["w0"]
    thread = running(supervisor)
    wait_until(lambda: says(tmp_path / "w1", "started"), "the ninth start")
    assert supervisor.pids["w0"] == undisturbed
    supervisor.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert [(tmp_path / name).read_text() for name in ("w0", "w1")] == ["stopped cleanly"] * 2


@pytest.mark.parametrize(
    "how", ["raise KeyError('a bug')", "sys.exit(0)", "sys.exit(130)", "os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_an_unforeseen_end_is_borne_a_few_times(tmp_path: Path, how: str) -> None:
    supervisor = Supervisor(command(tmp_path, failing_at_first(3, how)), 1, FastClock())
    thread = running(supervisor)
    wait_until(lambda: says(tmp_path / "w0", "started"), "the fourth start")
    supervisor.stop()
    thread.join(20)
    assert not thread.is_alive()


def test_a_worker_that_meets_a_bug_at_each_start_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match=r"exit code 1, 6 times within 120 s"):
        Supervisor(command(tmp_path, "raise KeyError('a bug')"), 1, SystemClock()).run()


class HurriedClock(SystemClock):
    """A second is a minute."""

    def monotonic_seconds(self) -> float:
        return 60 * super().monotonic_seconds()


def test_a_worker_whose_name_a_living_process_takes_again_and_again_is_given_up(tmp_path: Path) -> None:
    """Two supervisors with the same names: each end comes a minute or so after the last, and so for ever."""
    replaced = "import sys, time; time.sleep(1); sys.exit(19)"
    with pytest.raises(
        WorkerFailed, match=r"exit code 19 \(MembershipLost\), 3 times within 3600 s"
    ) as raised:
        Supervisor(command(tmp_path, replaced), 1, HurriedClock()).run()
    assert raised.value.exit_code == 19


def test_a_worker_that_waits_to_be_started_is_not_waited_for_at_the_end(tmp_path: Path) -> None:
    supervisor = Supervisor(command(tmp_path, "import sys; sys.exit(10)"), 1, SystemClock(), hears_quiet=True)
    thread = running(supervisor)
    wait_until(lambda: supervisor.quiet() == [], "its end")
    supervisor.stop()
    thread.join(20)
    assert not thread.is_alive()
    assert not thread.is_alive()


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
        from stateflow.runtime.process.supervisor import Supervisor
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
        "import sys\nfrom stateflow.runtime.process.supervisor import stop_with_parent\n"
        "stop_with_parent(lambda: None)\nsys.exit(20)"
    )
    with pytest.raises(WorkerFailed) as raised:
        Supervisor(lambda _: [sys.executable, "-c", failing], 1, SystemClock()).run()
    assert raised.value.exit_code == 20
