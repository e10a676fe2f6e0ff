"""Our side of a benchmark, in a process of its own: the last line of its output says what was measured.

python -m stateflow.lab.bench.ours '{"work": "count", …}' localhost:9092 /tmp/state application-id
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import stateflow as sf
from stateflow.clock import SystemClock
from stateflow.codec.table import from_description
from stateflow.lab.bench.our_restores import restore, restore_from_images
from stateflow.lab.bench.our_topics import read, write
from stateflow.lab.bench.result import Ran, bytes_digest
from stateflow.lab.bench.running import ran_here
from stateflow.lab.bench.shuffling import Rules, consumer_of, updated
from stateflow.lab.bench.workload import (
    JOIN_GRACE_MS,
    JOIN_WITHIN_MS,
    NUMBER,
    STORE,
    Workload,
    number_in,
    other_key_in,
)
from stateflow.lab.costs.running import Stopwatch
from stateflow.log.base import Cluster
from stateflow.log.kafka import connect
from stateflow.record import TopicPartition
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.task.task import Task
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.resources import RocksResources


class Summing(sf.Operator[bytes, bytes, int]):
    """A running sum, one record at a time."""

    total: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: bytes, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - an operator's signature
        """Add."""
        self.total.set(self.total.get() + number_in(value))


class Consuming(sf.Operator[bytes, bytes, bytes]):
    """A consumer of ShuffleBench."""

    kept: sf.Value[bytes] = sf.state(default=b"")

    def on_record(self, value: bytes, ctx: sf.Context[bytes]) -> None:
        """Keep, and tell with every tenth record."""
        new, is_told = updated(self.kept.get(), value, ctx.timestamp_ms)
        self.kept.set(new)
        if is_told:
            ctx.emit(new)


def _right(_left: bytes, right: bytes) -> bytes:
    """What a pair becomes."""
    return right


def _newer(_one: bytes, two: bytes) -> bytes:
    return two


def application(load: Workload, app_id: str, state_dir: Path, rules: Rules | None = None) -> sf.App:
    """The work as a user would write it; ``rules`` are those of ``shuffle``."""
    options = sf.AppOptions(
        state_dir=state_dir,
        partitions=load.partitions,
        guarantee=load.guarantee,
        commit_interval_seconds=load.commit_seconds,
        shared_writers=load.shared_writers,
    )
    app = sf.App(app_id, options=options)
    source, *others = (app.stream(app.topic(topic), co_partitioned=True) for topic in load.inputs)
    if load.work == "count":
        source.count(name=STORE)
    elif load.work == "join":
        span, grace = timedelta(milliseconds=JOIN_WITHIN_MS), timedelta(milliseconds=JOIN_GRACE_MS)
        pairs = source.join(others[0], _right, name="pairs", within=sf.Within(span, grace=grace))
        pairs.count(name=STORE)
    elif load.work == "newest":
        source.reduce(_newer, name=STORE)
    elif load.work == "shuffle":
        assert rules is not None
        copies = source.flat_map(rules.addressed, value=bytes)
        consumers = copies.key_by(consumer_of, name="by-consumer", key=bytes)
        consumers.process(Consuming, name="consuming").to(app.topic(f"{app_id}-output"))
    elif load.work == "rekey":
        source.key_by(other_key_in, name="by-other", key=bytes).count(name=STORE)
    elif load.work == "window":
        minutes = source.window(sf.Tumbling(timedelta(minutes=1)))
        minutes.sum(number_in, name=STORE, ttl=timedelta(days=36_500))
    else:
        source.process(Summing, name="summing")
    return app


def run(load: Workload, cluster: Cluster, app_id: str, place: Path) -> Ran:
    """Process the input, from ``warm_records`` on against the clock, until all of it is committed."""
    rules = Rules(load.keys, load.selectivity) if load.work == "shuffle" else None
    app = application(load, app_id, place, rules)
    topology, clock = app.topology(), SystemClock()
    wiring = prepare(cluster, topology, load.guarantee, load.partitions, clock)
    settings = worker_settings(app.options)
    worker = Worker(
        cluster,
        wiring,
        rocks_opener(cluster, settings, RocksResources.within(settings.memory)),
        settings,
        clock,
    )
    with closing(worker):
        _step_until(worker, lambda: _processed(worker, load) >= load.warm_records)
        watch = Stopwatch()
        _step_until(worker, lambda: _processed(worker, load) >= load.all_records)
        _step_until(worker, lambda: _has_consumed(worker, load, rules))
        wanted = {name: dict(task.offsets) for name, task in worker.tasks.items()}
        _step_until(worker, lambda: _has_committed(worker, wanted))
        took = watch.took()
        found = {key: value for task in _stateful(worker) for key, value in _entries(task)}
    return ran_here(load.timed_records, took, bytes_digest(found))


def _step_until(worker: Worker, is_done: Callable[[], bool]) -> None:
    while not is_done():
        worker.step()


def _stateful(worker: Worker) -> list[Task]:
    return [task for task in worker.tasks.values() if task.wiring.changelogs]


def _processed(worker: Worker, load: Workload) -> int:
    """Records of the input that the first stage has processed."""
    before = [task for task in worker.tasks.values() if not task.wiring.changelogs]
    return sum(task.records_total for task in (before if load.is_two_stages else _stateful(worker)))


def _has_consumed(worker: Worker, load: Workload, rules: Rules | None) -> bool:
    """Whether the second stage has got all that the first one has sent."""
    consumed = sum(task.records_total for task in _stateful(worker))
    return consumed >= (load.all_records if rules is None else rules.matched_total)


def _has_committed(worker: Worker, wanted: Mapping[str, Mapping[TopicPartition, int]]) -> bool:
    """Whether each task has committed up to these offsets; what it may say of event time later is not waited for."""
    tasks = worker.tasks
    return all(
        tasks[name].committed.offsets.get(source, 0) >= offset_next
        for name, offsets in wanted.items()
        for source, offset_next in offsets.items()
    )


def _entries(task: Task) -> Iterable[tuple[bytes, bytes]]:
    """What a task's store holds, keys and values as Kafka Streams writes them."""
    *_, store = sorted(task.wiring.stage.stores, key=lambda store: store.name == STORE)
    codec = from_description(task.wiring.entries[store.name].value_codec)
    return ((key, _written(codec.decode(value))) for key, value in task.stores.reader(store.name).scan())


def _written(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else NUMBER.pack(value)


def main(arguments: list[str]) -> None:
    """Do the work, and tell."""
    load, place, app_id = Workload.decode(arguments[0]), Path(arguments[2]), arguments[3]
    with closing(connect(arguments[1])) as cluster:
        match load.work:
            case "restore":
                ran = restore(load, cluster, place)
            case "image":
                ran = restore_from_images(load, cluster, place)
            case "read":
                ran = read(load, cluster)
            case "write":
                ran = write(load, cluster, f"{app_id}-output")
            case _:
                ran = run(load, cluster, app_id, place)
    print(json.dumps(asdict(ran)))


if __name__ == "__main__":
    main(sys.argv[1:])
