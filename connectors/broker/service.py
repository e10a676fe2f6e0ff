"""A broker that belongs to the user and not to one program: started, found again, and taken down later."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stateflow.connectors.broker.cluster import EmbeddedKafka
from stateflow.connectors.broker.distribution import KAFKA_JARS
from stateflow.connectors.broker.filelock import file_lock
from stateflow.connectors.broker.places import user_state_dir
from stateflow.connectors.broker.processes import command_line
from stateflow.connectors.broker.running import (
    DEFAULT_NAME,
    RunningBroker,
    forget_running,
    home_of,
    load_running,
    save_running,
)
from stateflow.errors import SetupError, StillRunning

STOP_SECONDS = 30.0
WATCH_SECONDS = 0.5
START_LOCK_SECONDS = 180.0


@dataclass(frozen=True)
class BrokerPlan:
    """What `stateflow up` starts. `data_dir` None keeps the data in the broker's folder, unless `ephemeral`."""

    brokers: int = 1
    data_dir: Path | None = None
    ephemeral: bool = False
    port: int = 9092
    name: str = DEFAULT_NAME

    @property
    def kept_dir(self) -> Path | None:
        """Where the data will stay; None when they will not."""
        if self.ephemeral:
            return None
        folder = "kafka" if self.brokers == 1 else f"kafka-{self.brokers}"
        return self.data_dir or home_of(self.name) / folder


def start_detached(plan: BrokerPlan) -> RunningBroker:
    """Start a cluster that goes on when this process ends, and record it. Raises StillRunning, SetupError."""
    with _starting(plan.name):
        cluster = EmbeddedKafka(plan.kept_dir, brokers=plan.brokers, port=plan.port, guarded=False).start()
        return _record(cluster, plan.name, owner_pid=None)


@contextmanager
def in_foreground(plan: BrokerPlan) -> Iterator[tuple[RunningBroker, EmbeddedKafka]]:
    """Run a recorded cluster for the time of the block. Raises StillRunning, SetupError."""
    with _starting(plan.name):
        cluster = EmbeddedKafka(plan.kept_dir, brokers=plan.brokers, port=plan.port).start()
        running = _record(cluster, plan.name, owner_pid=os.getpid())
    try:
        yield running, cluster
    finally:
        forget_running(plan.name)
        cluster.stop()


def watch(cluster: EmbeddedKafka, stop: threading.Event) -> None:
    """Return when `stop` is set. Raises SetupError when a broker ends by itself."""
    while not stop.wait(WATCH_SECONDS):
        for node in cluster.nodes:
            if not node.is_running:
                raise SetupError(
                    f"Broker {node.node_id} ended. What it said:\n{node.failure_text()}\n",
                    action="Read the cause above, and start it again.",
                )


def take_down(running: RunningBroker) -> None:
    """End a recorded cluster in order, by force after 30 s, and forget it; ephemeral data are removed."""
    deadline = time.monotonic() + STOP_SECONDS
    owner = running.owner_pid
    if owner is not None and running.live_pids and command_line(owner) is not None:
        os.kill(owner, signal.SIGTERM)  # it stops its brokers, and would report their end as a failure
    else:
        _signal(running.live_pids, signal.SIGTERM)
    while running.live_pids and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal(running.live_pids, signal.SIGKILL)
    if running.ephemeral:
        shutil.rmtree(running.data_dir, ignore_errors=True)
    forget_running(running.name)


@contextmanager
def _starting(name: str) -> Iterator[None]:
    """Let one start at a time look whether the broker of that name runs and record its own."""
    with file_lock(user_state_dir() / "up.lock", timeout_seconds=START_LOCK_SECONDS):
        running = load_running(name)
        if running is not None and running.live_pids:
            option = "" if name == DEFAULT_NAME else f" --name {name}"
            raise StillRunning(
                f"A broker already runs at {running.bootstrap}, with its data in {running.data_dir}.",
                action=f"Use it, end it with `stateflow down{option}`, or start another one with --name.",
                bootstrap=running.bootstrap,
            )
        if running is not None and running.ephemeral:
            shutil.rmtree(running.data_dir, ignore_errors=True)  # of a broker that was killed
        yield


def _record(cluster: EmbeddedKafka, name: str, *, owner_pid: int | None) -> RunningBroker:
    running = RunningBroker(
        name=name,
        bootstrap=cluster.bootstrap,
        version=KAFKA_JARS.version,
        pids=cluster.pids,
        owner_pid=owner_pid,
        data_dir=str(cluster.data_dir),
        ephemeral=cluster.is_ephemeral,
    )
    save_running(running)
    return running


def _signal(pids: tuple[int, ...], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # it ended in between, which is what was wanted
