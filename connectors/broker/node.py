"""One broker process: its folder, its start, its end."""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from stateflow.connectors.broker import guard
from stateflow.connectors.broker.distribution import CHECKPOINT_NAME, KafkaDistribution
from stateflow.connectors.broker.settings import properties_text
from stateflow.errors import SetupError

STOP_SECONDS = 20.0
KILL_SECONDS = 10.0
JVM_VARIABLE = "STATEFLOW_BROKER_JVM"
"""More arguments for the Java process of every embedded broker, as a shell would split them."""
_TAIL_BYTES = 64 << 10
_ERROR_LINE = re.compile(r"\b(ERROR|FATAL)\b|Exception\b|Error:|OutOfMemory|[Nn]o space left")


@dataclass(frozen=True, slots=True)
class Jvm:
    """How the Java process of a broker is started."""

    heap_mib: int
    arguments: tuple[str, ...]


SMALL_JVM = Jvm(256, ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"))
"""Up in two seconds, on little memory: for tests and development."""
PRODUCTION_JVM = Jvm(1024, ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"))
"""As Kafka's own start scripts set it, without pinning the heap: what an operator's broker computes with."""


def random_id() -> str:
    """A fresh cluster or folder id as Kafka writes them: 16 random bytes, URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class NodeLife(Enum):
    """What becomes of a node when the process that started it ends without stopping it, by kill -9 even."""

    OUTLIVES_US = "goes on"
    ENDS_WITH_US = "is stopped in order"
    LEAVES_NOTHING = "is stopped, and its cluster's folder is removed"


class BrokerNode:
    """Node `node_id` of a cluster, living in `folder`. It owns at most one process at a time."""

    def __init__(self, node_id: int, folder: Path, *, jvm: Jvm = SMALL_JVM, life: NodeLife) -> None:
        self.node_id = node_id
        self.folder = folder
        self.log_dir = folder / "log"
        self.output_path = folder / "broker.out"
        self._jvm = jvm
        self._life = life
        self._process: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int:
        """Process id of the broker's Java process. It is a bug to ask a node that was never started."""
        assert self._pid is not None, "the node was not started"
        return self._pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives; it may not serve requests yet."""
        return self._process is not None and self._process.poll() is None

    def format(self, cluster_id: str, distribution: KafkaDistribution) -> None:
        """Give an empty folder the cluster's identity and feature levels; leave a formatted one alone."""
        identity = self.log_dir / "meta.properties"
        if identity.exists():
            return
        self.log_dir.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(distribution.bootstrap_checkpoint, self.log_dir / CHECKPOINT_NAME)
        draft = identity.with_suffix(".draft")
        draft.write_text(
            f"version=1\ncluster.id={cluster_id}\nnode.id={self.node_id}\ndirectory.id={random_id()}\n"
        )
        draft.replace(identity)

    def start(self, settings: Mapping[str, str], distribution: KafkaDistribution, *, lock: int) -> None:
        """Start the process; returns before it serves. The previous process must have ended.

        The process inherits the file descriptor `lock`, and with it the lock on the cluster's folder.
        """
        assert not self.is_running, "the node is running"
        properties = self.folder / "server.properties"
        properties.write_text(properties_text(settings))
        command = [
            str(distribution.java.executable),
            f"-Xmx{self._jvm.heap_mib}m",
            *self._jvm.arguments,
            *shlex.split(os.environ.get(JVM_VARIABLE, "")),
            "-XX:+ExitOnOutOfMemoryError",
            "-cp",
            distribution.classpath,
            "kafka.Kafka",
            str(properties),
        ]
        with self.output_path.open("wb") as output:
            self._process = self._spawn(command, output.fileno(), lock)

    def _spawn(self, command: list[str], output: int, lock: int) -> subprocess.Popen[bytes]:
        if self._life is NodeLife.OUTLIVES_US:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(lock,),
                start_new_session=True,
            )
            self._pid = process.pid
            return process
        leftover = str(self.folder) if self._life is NodeLife.LEAVES_NOTHING else ""
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), leftover, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            pass_fds=(lock,),
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            announced = process.stdout.readline()
        if not announced:
            process.wait(KILL_SECONDS)
            raise SetupError(
                f"The process that guards the broker failed:\n{self.output_tail()}\n",
                action="Read the cause above; this Python must be able to start itself as a child process.",
            )
        self._pid = int(announced)
        return process

    def ask_to_stop(self) -> None:
        """Begin an orderly end (SIGTERM: Kafka closes its logs), without waiting for it."""
        if self.is_running:
            self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the process in order, or by force if it does not within 20 s. Harmless when none runs."""
        if self._process is None:
            return
        if self.is_running:
            self.ask_to_stop()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        self._reap()

    def kill(self) -> None:
        """End the process at once, as a crash would (SIGKILL)."""
        if self.is_running:
            self._signal(signal.SIGKILL)
        self._reap()

    def _signal(self, number: signal.Signals) -> None:
        """Signal the broker itself: its guard ends with it."""
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            assert self._process is not None
            self._process.wait(KILL_SECONDS)  # it ended by itself, and its guard is about to

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(KILL_SECONDS)
            if self._process.stdin is not None:
                self._process.stdin.close()

    def failure_text(self) -> str:
        """What the broker said about its failure: its last errors, or its last lines if it named none."""
        lines = self.output_tail(400).splitlines()
        errors = [line for line in lines if _ERROR_LINE.search(line)]
        return "\n".join(errors[-8:] or lines[-15:])

    def output_tail(self, lines: int = 15) -> str:
        """The last lines that the broker printed."""
        if not self.output_path.exists():
            return ""
        with self.output_path.open("rb") as output:
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _TAIL_BYTES))
            return "\n".join(output.read().decode(errors="replace").splitlines()[-lines:])
