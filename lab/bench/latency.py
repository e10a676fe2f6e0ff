"""The work whose latency is measured, and our side of it, a process of its own that runs until standard input ends.

Each side keeps the newest value per key, with its changelog, perhaps behind a re-key step, and writes it to an output
topic, exactly-once.

python -m stateflow.lab.bench.latency '{"rate": 2000, …}' localhost:9092 /tmp/state application-id
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import stateflow as sf
from stateflow.clock import SystemClock
from stateflow.lab.bench.mixed import mixed
from stateflow.log.kafka import connect
from stateflow.log.kafka.settings import KafkaOptions
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.resources import RocksResources

STORE = "newest"
KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class LatencyLoad:
    """What is sent, and how each side commits."""

    rate: int = 2_000
    """Records per second."""
    seconds: float = 20.0
    """Time that counts; ``warm_seconds`` before it do not."""
    warm_seconds: float = 5.0
    keys: int = 10_000
    partitions: int = 4
    value_bytes: int = 100
    stages: Literal["newest", "mixed"] = "newest"
    """The newest value per key, or all of ``mixed.py``, which is ours alone."""
    rekeyed: bool = False
    commit_seconds: float | None = None
    """Commit interval; None is each side's default."""
    commit_min_seconds: float | None = None
    """Our least interval between commits; None is the default."""
    threads: int = 2
    shared_writers: int = 0
    """Ours."""

    def encode(self) -> str:
        """As the sides read it."""
        return json.dumps(asdict(self) | {"work": "latency", "key_bytes": KEY_BYTES})

    @classmethod
    def decode(cls, text: str) -> Self:
        """What ``encode`` wrote."""
        fields = json.loads(text)
        return cls(**{name: value for name, value in fields.items() if name in cls.__dataclass_fields__})


def input_topic(app_id: str) -> str:
    """What a side reads."""
    return f"{app_id}-in"


def output_topic(app_id: str) -> str:
    """What it writes."""
    return f"{app_id}-out"


def application(load: LatencyLoad, app_id: str, state_dir: Path) -> sf.App:
    """The newest value of each key, as a user would write it; only what the load says differs from the defaults."""
    chosen: dict[str, Any] = {}
    if load.commit_seconds is not None:
        chosen = dict.fromkeys(
            ("commit_interval_seconds", "commit_interval_min_seconds"), load.commit_seconds
        )
    if load.commit_min_seconds is not None:
        chosen["commit_interval_min_seconds"] = load.commit_min_seconds
    options = sf.AppOptions(
        state_dir=state_dir,
        partitions=load.partitions,
        guarantee="exactly-once",
        shared_writers=load.shared_writers,
        **chosen,
    )
    app = sf.App(app_id, options=options)
    stream = app.stream(app.topic(input_topic(app_id)), co_partitioned=True)
    if load.stages == "mixed":
        mixed(stream, app.topic(output_topic(app_id)))
        return app
    if load.rekeyed:
        stream = stream.key_by(_other_key, name="by-other", key=bytes)
    stream.reduce(_newer, name=STORE).to(app.topic(output_topic(app_id)))
    return app


def _other_key(value: bytes) -> bytes:
    return value[:KEY_BYTES]


def _newer(_one: bytes, two: bytes) -> bytes:
    return two


def run(load: LatencyLoad, brokers: str, app_id: str, place: Path) -> None:
    """Run the application until standard input ends."""
    app, clock, ended = application(load, app_id, place), SystemClock(), threading.Event()
    settings = worker_settings(app.options)
    clients = KafkaOptions.within(settings.memory, settings.restore_threads, settings.commit_interval_seconds)

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    with closing(connect(brokers, options=clients)) as cluster:
        wiring = prepare(cluster, app.topology(), app.options.guarantee, load.partitions, clock)
        opener = rocks_opener(cluster, settings, RocksResources.within(settings.memory))
        with closing(Worker(cluster, wiring, opener, settings, clock)) as worker:
            while not ended.is_set():
                worker.step()


def main(arguments: Sequence[str]) -> None:
    """Our side."""
    run(LatencyLoad.decode(arguments[0]), arguments[1], arguments[3], Path(arguments[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
