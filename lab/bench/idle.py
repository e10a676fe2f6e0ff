"""What tasks cost that have nothing to do: one worker process with so many, after each of them has written once.

python -m stateflow.lab.bench.idle '{"tasks": 64, "shared_writers": 0, "seconds": 20}' localhost:9092 /tmp/state app-id
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import stateflow as sf
from stateflow.clock import SystemClock
from stateflow.errors import JobFailed
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.record import TopicPartition
from stateflow.runtime.process.launch import rocks_opener, stateless_apart
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.resources import RocksResources

_SOURCE = "in"
_READY_SECONDS_MAX = 900.0
_SETTLE_SECONDS = 8.0
"""Inputs are idle after 5 s, and the tasks behind are told."""
_QUIET_SECONDS_MAX = 120.0
"""Many tasks take longer to hear of it: they are waited for, until nothing happens any more."""


@dataclass(frozen=True, slots=True)
class IdleLoad:
    """One worker to measure."""

    tasks: int
    """Half of them read the source, half keep counts behind a re-key step."""
    shared_writers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class IdleCost:
    """What one worker process took."""

    tasks: int
    shared_writers: int
    ready_seconds: float
    """From its start until every task ran and everything that was sent was committed."""
    ready_cpu_seconds: float
    threads: int
    descriptors: int
    rss_bytes: int
    cpu_percent: float
    """Of one core, while nothing happened."""


def measure_idle(
    loads: Sequence[IdleLoad], bootstrap: str, place: Path, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Each load in a process of its own, one after the other. Raises ``JobFailed``."""
    rows = []
    for load in loads:
        tell(f"{load.tasks} tasks, {load.shared_writers or 'no'} shared writers …")
        app = f"idle-{uuid.uuid4().hex[:8]}"
        state = place / app
        arguments = [json.dumps(asdict(load)), bootstrap, str(state), app]
        ran = subprocess.run(
            [sys.executable, "-m", "stateflow.lab.bench.idle", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise JobFailed(
                f"The worker with {load.tasks} tasks ended with code {ran.returncode}: {ran.stderr[-2_000:]}",
                action="look at what it says; fewer tasks may fit into the memory of this machine.",
            )
        rows.append(json.loads(ran.stdout.splitlines()[-1]))
    return rows


def application(load: IdleLoad, app_id: str, state_dir: Path) -> sf.App:
    """Counts by key behind a re-key step."""
    options = sf.AppOptions(
        state_dir=state_dir, partitions=load.tasks // 2, shared_writers=load.shared_writers
    )
    app = sf.App(app_id, options=options)
    source = app.stream(app.topic(f"{app_id}-{_SOURCE}"))
    source.key_by(bytes, name="by-value", key=bytes).count(name="counts")
    return app


def run(load: IdleLoad, cluster: Cluster, app_id: str, place: Path) -> IdleCost:
    """Begin a worker, let every task write something, then look at the process."""
    app, clock, partitions = application(load, app_id, place), SystemClock(), load.tasks // 2
    topic = f"{app_id}-{_SOURCE}"
    cluster.create([TopicSpec(topic, partitions)])
    _feed(cluster, topic, partitions)
    began, cpu = time.monotonic(), time.process_time()
    settings = worker_settings(app.options)
    wiring = prepare(cluster, app.topology(), app.options.guarantee, partitions, clock)
    opener = stateless_apart(rocks_opener(cluster, settings, RocksResources.within(settings.memory)))
    with closing(Worker(cluster, wiring, opener, settings, clock)) as worker:
        while len(worker.tasks) < load.tasks or worker.starting or not is_drained(cluster, wiring.catalog):
            _step_for(worker, 1.0)
            if time.monotonic() - began > _READY_SECONDS_MAX:
                raise JobFailed(
                    f"After {_READY_SECONDS_MAX:.0f} s {len(worker.tasks)} of {load.tasks} tasks run.",
                    action="look at the worker's log.",
                )
        ready, ready_cpu = time.monotonic() - began, time.process_time() - cpu
        _step_for(worker, _SETTLE_SECONDS)
        _step_until_quiet(worker)
        began, cpu = time.monotonic(), time.process_time()
        _step_for(worker, load.seconds)
        percent = 100 * (time.process_time() - cpu) / (time.monotonic() - began)
        return IdleCost(
            load.tasks,
            load.shared_writers,
            round(ready, 1),
            round(ready_cpu, 1),
            len(os.listdir("/proc/self/task")),
            len(os.listdir("/proc/self/fd")),
            _rss_bytes(),
            round(percent, 1),
        )


def _feed(cluster: Cluster, topic: str, partitions: int) -> None:
    with closing(cluster.writer()) as writer:
        for number in range(partitions):
            writer.send(topic, None, b"%d" % number, partition=number)
        writer.commit()
    places = [TopicPartition(topic, number) for number in range(partitions)]
    assert all(not log.is_empty for log in cluster.ranges(places).values())


def _step_until_quiet(worker: Worker) -> None:
    until = time.monotonic() + _QUIET_SECONDS_MAX
    while not worker.is_quiet and time.monotonic() < until:
        _step_for(worker, 1.0)


def _step_for(worker: Worker, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        worker.step()


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(arguments: Sequence[str]) -> None:
    """Measure, and print what was measured as the last line."""
    load, bootstrap, place, app_id = arguments
    cluster = connect(bootstrap)
    cost = run(IdleLoad(**json.loads(load)), cluster, app_id, Path(place))
    print(json.dumps(asdict(cost)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
