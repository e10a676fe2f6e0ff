"""A place to type `stateflow` commands in: an application of its own, a state directory, a real broker."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateflow.cli.main import run
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster
from stateflow.log.reading import read_range
from stateflow.record import Record, TopicPartition
from tests.waiting import wait_until

APPS = Path(__file__).parent / "apps"
_END_SECONDS = 60.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> dict[str, Any]:
        """The error of a command with ``--json``: one JSON object, alone on stdout."""
        (line,) = self.out.splitlines()
        body: dict[str, Any] = json.loads(line)
        assert body["exit_code"] == self.code, "the object and the process end with different codes"
        return body


class Site:
    """Commands about one application, which no other test has.

    ``environment`` is what every command sees beside the process's own.
    """

    def __init__(
        self,
        bootstrap: str,
        place: Path,
        name: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.place = place
        self.state = place / "state"
        self.cluster = KafkaCluster(bootstrap)
        self.digits = f"{APPS / 'digits.py'}:app"
        self.shelves = f"{APPS / 'shelves.py'}:app"
        self.orders = f"{APPS / 'orders.py'}:app"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.set(
            DIGITS_APP=name,
            SHELVES_APP=name,
            ORDERS_APP=name,
            STATEFLOW_BROKERS=bootstrap,
            STATEFLOW_STATE_DIR=str(self.state),
            STATEFLOW_COMMIT_INTERVAL_SECONDS="0.2",
            # What a session's timeout would cost a test that kills a member.
            STATEFLOW_CLIENT__SESSION_TIMEOUT_MS="6000",
        )
        monkeypatch.chdir(place)

    def set(self, **environment: str) -> None:
        """Set environment variables for all later commands."""
        for name, value in environment.items():
            self._monkeypatch.setenv(name, value)

    # --- the log --------------------------------------------------------------------------------------

    def topic(self, *suffixes: str, partitions: int = 1) -> None:
        """Create topics called after the application."""
        self.cluster.create([TopicSpec(f"{self.name}-{suffix}", partitions) for suffix in suffixes])

    def feed(self, values: Iterable[int | bytes], *, key: bytes | None = None) -> None:
        """Write numbers, or bytes that are none, to the source."""
        now_ms = int(time.time() * 1000)  # retention goes by the records' times: old ones would vanish
        writer = self.cluster.writer()
        writer.begin()
        for value in values:
            data = value if isinstance(value, bytes) else struct.pack(">q", value)
            writer.send(f"{self.name}-in", key, data, partition=0, timestamp_ms=now_ms)
        writer.commit()
        writer.close()

    def records(self, suffix: str, partition: int = 0) -> list[Record]:
        """Everything that can be read in one of the application's topics."""
        source = TopicPartition(f"{self.name}-{suffix}", partition)
        log = self.cluster.ranges([source])[source]
        return [record for batch in read_range(self.cluster, source, log) for record in batch.records()]

    def counted(self) -> dict[int, int]:
        """Last digit → its newest count, from the output topic."""
        keyed = [(record.key, record.value) for record in self.records("out")]
        return {
            int.from_bytes(key, "big"): json.loads(value) for key, value in keyed if key is not None and value
        }

    def see(self, topic: str, partitions: int) -> None:
        """Wait until the broker tells of so many partitions."""

        def there() -> bool:
            found = self.cluster.describe([topic])
            return topic in found and found[topic].partitions == partitions

        wait_until(there, lambda: f"{topic} with {partitions} partitions")

    # --- commands -------------------------------------------------------------------------------------

    def type(self, *arguments: str) -> Ended:
        """Run a command line in this process."""
        self._capsys.readouterr()
        code = run(arguments)
        said = self._capsys.readouterr()
        return Ended(code, said.out, said.err)

    def drained(self, target: str | None = None, *options: str) -> Ended:
        """Run the application until its input is processed."""
        return self.type("run", target or self.digits, "--until-drained", *options)

    def command(self, *arguments: str) -> list[str]:
        """The command line as a process of its own."""
        return [sys.executable, "-m", "stateflow.cli", *arguments]

    def begin(self, *arguments: str) -> Process:
        """Start a command in a process of its own, as a shell does: signals reach it alone."""
        return Process(self.command(*arguments), self.place / "said.txt")


class Process:
    """A command that runs, and what it has said so far, stdout and stderr together."""

    def __init__(self, command: list[str], said: Path) -> None:
        self._said = said
        with said.open("w") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def said(self) -> str:
        """All it has written."""
        return self._said.read_text()

    def until(self, text: str, times: int = 1) -> None:
        """Wait until it has said something so often."""
        wait_until(
            lambda: self.said.count(text) >= times, lambda: f"{text!r} in:\n{self.said}", self.still_runs
        )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self._process.send_signal(number)

    def ended(self, seconds: float = _END_SECONDS) -> int:
        """Wait for its end; returns the exit code (negative for a signal)."""
        return self._process.wait(seconds)

    def children(self) -> list[int]:
        """Process ids of its child processes."""
        return child_pids(self.pid)

    def close(self) -> None:
        """Make sure that it is gone, with what it started."""
        for pid in [*self.children(), self.pid]:
            if self._process.poll() is None or pid != self.pid:
                os.kill(pid, signal.SIGKILL)
        self._process.wait(_END_SECONDS)

    def still_runs(self) -> None:
        """Fail when it has ended."""
        assert self._process.poll() is None, f"it ended with {self._process.returncode}:\n{self.said}"


def child_pids(parent: int) -> list[int]:
    """Processes whose parent this is, from /proc."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
