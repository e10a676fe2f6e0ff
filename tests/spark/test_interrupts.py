"""Ctrl-C and SIGTERM while Spark starts or works: one line at most, the exit code, and no process that is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stateflow.errors import Interrupted, JobFailed
from tests.waiting import wait_until

pytestmark = pytest.mark.spark

_COMMAND = """
import click
from stateflow.cli.main import run
from stateflow.spark.session import SparkSettings, spark_session

@click.command()
def work():
    with spark_session(SparkSettings(is_python=True)) as session:
        print("working", flush=True)
        session.sparkContext.parallelize([600], 1).foreach(__import__("time").sleep)

raise SystemExit(run([], work))
"""
LINE = "error: Stopped by the user. What to do: Start it again to go on."


class Started:
    """A program in a process group of its own, as a shell starts it."""

    def __init__(self, folder: Path, *command: str) -> None:
        self.folder = folder
        self.output = folder / "output"
        (folder / "temporary").mkdir()
        # by which the processes are known that it has started, whoever their parent is by now
        self._mark = f"TMPDIR={folder / 'temporary'}"
        env = {**os.environ, "TMPDIR": str(folder / "temporary")}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something that it does."""
        wait_until(lambda: what() or self.process.poll() is not None, "the program to come so far")
        assert self.process.poll() is None, self.said()

    def end_by(self, number: int) -> int:
        """Send the signal to the process group; returns the exit code."""
        os.killpg(self.process.pid, number)
        code = self.process.wait(60)
        print(self.output.read_text())  # pytest shows it where the test fails
        return code

    def said(self) -> list[str]:
        """The lines that it has printed, without what Java says of itself."""
        lines = self.output.read_text().splitlines()
        return [line for line in lines if line.strip() and not line.startswith("WARNING: Using incubator")]

    def processes(self) -> dict[int, str]:
        """The commands of all processes that are there of it, by their ids."""
        found = {}
        for place in Path("/proc").iterdir():
            try:
                if place.name.isdigit() and self._mark.encode() in (place / "environ").read_bytes().split(
                    b"\0"
                ):
                    found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended meanwhile, or is not ours
        return found

    def has_java(self) -> bool:
        """True when Spark's Java process has begun to start."""
        return any("deploy.SparkSubmit" in command for command in self.processes().values())

    def has_worker(self) -> bool:
        """True when Python works for Spark, forked from its daemon."""
        return sum("worker_daemon pyspark.worker" in command for command in self.processes().values()) >= 2

    def check_gone(self) -> None:
        """No process is left, nor a file."""
        wait_until(lambda: not self.processes(), lambda: f"the end of {self.processes()}", seconds=20)
        assert list((self.folder / "temporary").iterdir()) == []


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Starts a program of Python; what is still there of it at the end is killed."""
    programs: list[Started] = []

    def start(*arguments: str) -> Started:
        programs.append(Started(tmp_path, sys.executable, *arguments))
        return programs[-1]

    yield start
    for program in programs:
        for pid in program.processes():
            os.kill(pid, signal.SIGKILL)
        program.process.wait()


def test_an_interrupt_while_java_starts_leaves_nothing(started: Callable[..., Started]) -> None:
    program = started("-c", _COMMAND)
    program.until(program.has_java)
    assert program.end_by(signal.SIGINT) == Interrupted.exit_code
    assert program.said() == [LINE]
    program.check_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_amid_a_job_is_one_line(started: Callable[..., Started], number: int) -> None:
    program = started("-c", _COMMAND)
    program.until(lambda: "working" in program.said())
    assert program.end_by(number) == Interrupted.exit_code
    assert program.said() == ["working", LINE]
    program.check_gone()


_WAITING = """
import pathlib, sys, time
from stateflow.spark.session import SparkSettings, spark_session

def wait(file):
    while not pathlib.Path(file).exists():
        time.sleep(0.05)

with spark_session(SparkSettings(is_python=True)) as session:
    session.sparkContext.parallelize([sys.argv[1]], 1).foreach(wait)
"""


def test_signals_to_all_processes_are_left_to_the_driver(
    started: Callable[..., Started], tmp_path: Path
) -> None:
    """As systemd sends them by default: others go on until the driver, which has work to end, ends them."""
    program = started("-c", _WAITING, str(tmp_path / "end"))
    program.until(program.has_worker)
    for pid in program.processes().keys() - {program.process.pid}:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    (tmp_path / "end").touch()
    assert program.process.wait(60) == 0, program.said()
    assert program.said() == []
    program.check_gone()


def test_the_end_of_java_is_told_as_an_error(started: Callable[..., Started]) -> None:
    program = started("-c", _COMMAND)
    program.until(lambda: "working" in program.said())
    for pid, command in program.processes().items():
        if "deploy.SparkSubmit" in command:
            os.kill(pid, signal.SIGKILL)
    assert program.process.wait(60) == JobFailed.exit_code
    working, error = program.said()
    assert working == "working"
    assert error.startswith("error: Spark's Java process has ended (exit code -9)")


_JOB = """
import sys, time
from stateflow.errors import StateflowError
from stateflow.interrupts import as_ctrl_c
from stateflow.spark.job_errors import report
from stateflow.spark.session import spark_session

def main():
    try:
        with as_ctrl_c(), spark_session() as session:
            print("working", flush=True)
            session.sparkContext.parallelize([600], 1).foreach(time.sleep)
    except (StateflowError, KeyboardInterrupt) as error:
        return report(error)

sys.exit(main())
"""
_QUIET = "spark.driver.extraJavaOptions=-Dlog4j2.level=error"


@pytest.mark.parametrize("moment", ["while Java starts", "while it works"])
def test_an_interrupted_submission_stops_what_it_submitted(
    started: Callable[..., Started], tmp_path: Path, moment: str
) -> None:
    (tmp_path / "job.py").write_text(_JOB)
    arguments = ["jobs", "submit", "--conf", _QUIET, str(tmp_path / "job.py")]
    program = started("-m", "stateflow.cli", *arguments)
    program.until(program.has_java if moment == "while Java starts" else lambda: "working" in program.said())
    assert program.end_by(signal.SIGINT) == Interrupted.exit_code
    assert [line for line in program.said() if line.startswith("error") or "Traceback" in line] == [LINE]
    assert "KeyboardInterrupt" not in "".join(program.said())
    program.check_gone()
