"""Failpoints: the table is the calls, arming is exact, unknown names are refused, and nothing strikes unasked."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow import failpoints
from stateflow.errors import ConfigError
from stateflow.failpoints import POINTS, VARIABLE, FailpointStruck, Strike, Strikes, handled, phases, reach

ROOT = Path(__file__).resolve().parents[2]
IMPORT = "from stateflow.failpoints import"
FOLDERS = ("stateflow", "connectors", "compaction", "cli")


def calls() -> Iterator[str]:
    """The point named by every `reach(...)` in the product."""
    paths = {path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    for path in sorted(paths):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if IMPORT in text else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "reach":
                (argument,) = node.args
                assert isinstance(argument, ast.Constant), f"{path}: a point is named where it is reached"
                yield str(argument.value)


def test_the_table_is_what_the_code_reaches() -> None:
    assert set(calls()) == set(POINTS)


def test_every_point_is_reached_in_one_place() -> None:
    named = sorted(calls())
    assert named == sorted(set(named))


def test_names_and_meanings_read_well() -> None:
    for name, meaning in POINTS.items():
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", name)
        assert meaning
        assert not meaning.endswith(".")
    assert phases()[:2] == ["startup", "open"]


def test_nothing_happens_where_nothing_is_armed() -> None:
    reach("commit.before_end")
    assert failpoints._handler is None


def test_a_handler_is_told_in_the_thread_that_reaches() -> None:
    seen: list[tuple[str, str]] = []
    with handled(lambda point: seen.append((point, threading.current_thread().name))):
        reach("commit.before_end")
        thread = threading.Thread(target=reach, args=("restore.after_read",), name="restore-1")
        thread.start()
        thread.join()
    reach("commit.after_end")
    assert seen == [("commit.before_end", "MainThread"), ("restore.after_read", "restore-1")]


def test_a_simulated_crash_is_no_exception_that_anybody_handles() -> None:
    class Crash(BaseException):
        pass

    def die(point: str) -> None:
        raise Crash(point)

    def work() -> None:
        with contextlib.suppress(Exception):
            reach("open.after_fence")

    with pytest.raises(Crash), handled(die):
        work()
    work()


def test_a_hung_thread_goes_on_when_it_is_let() -> None:
    hung, awake, after = threading.Event(), threading.Event(), threading.Event()

    def wait(_point: str) -> None:
        hung.set()
        assert awake.wait(10)

    def work() -> None:
        reach("commit.before_end")
        after.set()

    with handled(wait):
        thread = threading.Thread(target=work)
        thread.start()
        assert hung.wait(10)
        assert not after.is_set()
        awake.set()
        thread.join()
    assert after.is_set()


def test_a_strike_comes_at_its_hit_and_once(capfd: pytest.CaptureFixture[str]) -> None:
    strike = Strike.parse("commit.after_end:3:raise")
    with handled(Strikes([strike])):
        reach("commit.after_end")
        reach("commit.after_end")
        reach("commit.before_end")
        with pytest.raises(FailpointStruck, match=r"commit\.after_end"):
            reach("commit.after_end")
        reach("commit.after_end")
    assert capfd.readouterr().err.splitlines() == [Strikes.announced(strike)]


def test_unknown_points_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"commit\.nowhere"):
        Strike.parse("commit.nowhere:1:kill")
    with pytest.raises(ConfigError, match=r"commit\.nowhere"):
        Strikes([Strike("commit.nowhere", "kill")])
    with pytest.raises(ConfigError, match=r"commit\.nowhere"), handled(lambda _point: None):
        reach("commit.nowhere")


@pytest.mark.parametrize(
    "text", ["commit.done", "commit.done:0:kill", "commit.done:x:kill", "commit.done:1:explode"]
)
def test_a_fault_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="point:hit:action"):
        Strike.parse(text)


def test_a_strike_reads_back() -> None:
    strike = Strike("flush.before", "stop", 2)
    assert Strike.parse(str(strike)) == strike


def child(fault: str, *code: str) -> subprocess.Popen[str]:
    program = "; ".join(["from stateflow.failpoints import *", "arm_from_environment()", *code])
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, VARIABLE: fault, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


REACH_TWICE = ("reach('flush.before')", "print('one', flush=True)", "reach('flush.before')", "print('two')")


def test_an_armed_child_is_killed_at_the_point_and_says_so_before() -> None:
    process = child("flush.before:2:kill", *REACH_TWICE)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (-signal.SIGKILL, "one\n")
    assert Strikes.announced(Strike("flush.before", "kill", 2)) in err


def test_an_armed_child_hangs_until_it_is_continued() -> None:
    process = child("flush.before:2:stop", *REACH_TWICE)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "one\ntwo\n")


def test_the_command_line_refuses_a_fault_it_does_not_know() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stateflow.cli", "--help"],
        env={**os.environ, VARIABLE: "nowhere:1:kill", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == ConfigError.exit_code
    assert "nowhere" in done.stderr
