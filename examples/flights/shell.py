"""Runs the ``stateflow`` command as a user would: in a process of its own, shown with its output."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

STOP_SECONDS = 60.0


class CommandFailed(Exception):
    """A command ended with an exit code that the demo did not expect."""


def shown(arguments: tuple[str, ...]) -> str:
    """A command line as one would type it from the root of the checkout."""
    root = f"{Path.cwd()}{os.sep}"
    return "stateflow " + shlex.join(argument.removeprefix(root) for argument in arguments)


class Background:
    """A ``stateflow`` command that runs until it is stopped; its output goes to a file."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str], log: Path) -> None:
        self.arguments = arguments
        self.log = log
        self._file: TextIO = log.open("a", encoding="utf-8")
        self.process = subprocess.Popen(
            command_line(arguments),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the demo alone, which stops this in order
        )

    def text(self) -> str:
        """Everything written so far."""
        return self.log.read_text(encoding="utf-8")

    def check(self) -> None:
        """Raise ``CommandFailed`` when it ended by itself."""
        if self.process.poll() is not None:
            raise CommandFailed(failure(self.arguments, self.process.returncode, self.text()))

    def wait_until(
        self, reached: Callable[[], bool], what: str, seconds: float, pause: float = 0.05
    ) -> float:
        """Wait for a condition while the command runs; returns the seconds it took.

        Raises ``CommandFailed`` when the command ends first, or the time is over.
        """
        started = time.monotonic()
        while not reached():
            self.check()
            if time.monotonic() - started > seconds:
                late = f"{what} did not happen within {seconds:.0f} s; see {self.log}"
                raise CommandFailed(f"{late}, whose end is\n{ending(self.text())}")
            time.sleep(pause)
        return time.monotonic() - started

    def stop(self) -> float:
        """Interrupt it as Ctrl-C would, and wait for its clean end; returns the seconds it took."""
        started = time.monotonic()
        self.check()
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(STOP_SECONDS)
        if code not in (0, 130):
            raise CommandFailed(failure(self.arguments, code, self.text()))
        self._file.close()
        return time.monotonic() - started

    def end(self) -> None:
        """Make sure that it is gone, in order if possible; nothing is raised."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._file.close()


class Shell:
    """Starts commands against one broker, and ends what still runs when the demo ends."""

    def __init__(self, brokers: str, logs: Path) -> None:
        self._environment = {**os.environ, "STATEFLOW_BROKERS": brokers, "PYTHONUNBUFFERED": "1"}
        self._logs = logs
        self._running: list[Background] = []
        self.commands: list[str] = []
        """What was run, in the words of a command line; the demo moves these into its report."""

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        for background in self._running:
            background.end()

    def start(self, name: str, *arguments: str) -> Background:
        """Start a command that goes on running."""
        self._tell(arguments)
        background = Background(arguments, self._environment, self._logs / f"{name}.log")
        self._running.append(background)
        return background

    def run(self, *arguments: str, expect: tuple[int, ...] = (0,)) -> str:
        """Run a command to its end, show its output, and return what it wrote to stdout.

        Its stderr, where progress bars go, is the demo's own. Raises ``CommandFailed``.
        """
        text = self._run(arguments, expect)
        for line in text.splitlines():
            print(f"    {line}", flush=True)
        return text

    def json(self, *arguments: str, expect: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
        """Run a command with ``--json`` and return its objects, one per line of stdout."""
        text = self._run((*arguments, "--json"), expect)
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def _run(self, arguments: tuple[str, ...], expect: tuple[int, ...]) -> str:
        self._tell(arguments)
        process = subprocess.Popen(
            command_line(arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            text, _ = process.communicate()
        except BaseException:  # Ctrl-C above all: the command must not outlive the demo
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
        if process.returncode not in expect:
            raise CommandFailed(failure(arguments, process.returncode, text))
        return text

    def _tell(self, arguments: tuple[str, ...]) -> None:
        self.commands.append(shown(arguments))
        print(f"  $ {shown(arguments)}", flush=True)


def command_line(arguments: tuple[str, ...]) -> list[str]:
    """The command in this Python's environment."""
    return [sys.executable, "-m", "stateflow.cli", *arguments]


def failure(arguments: tuple[str, ...], code: int, output: str) -> str:
    """A failed command in one sentence with the end of its output."""
    return f"`{shown(arguments)}` ended with exit code {code}.\n{ending(output)}"


def ending(output: str) -> str:
    """The last lines of what a command wrote."""
    return "\n".join(output.rstrip().splitlines()[-30:])


class Failing(threading.Thread):
    """A thread whose failure is raised where it is joined."""

    def __init__(self, work: Callable[[], Any], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._error: BaseException | None = None
        self.result: Any = None

    def run(self) -> None:
        """Run the work and keep what comes of it."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001  raised again by ``finish``
            self._error = error

    def finish(self) -> Any:
        """Wait for the end; returns the result or raises the failure."""
        self.join()
        if self._error is not None:
            raise self._error
        return self.result
