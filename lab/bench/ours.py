"""Our side of a benchmark, in a process of its own: the last line of its output says what was measured.

python -m stateflow.lab.bench.ours '{"work": "count", …}' localhost:9092 /tmp/state application-id
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import stateflow as sf
from stateflow.checkpoint.planner import plan_task
from stateflow.checkpoint.restore import Restoration
from stateflow.clock import SystemClock
from stateflow.codec.table import from_description
from stateflow.lab.bench.result import Ran, bytes_digest, digest
from stateflow.lab.bench.workload import Workload, number_in, other_key_in
from stateflow.lab.costs.running import Stopwatch, Took
from stateflow.log.base import Cluster
from stateflow.log.kafka import connect
from stateflow.native.loading import native_state
from stateflow.record import TopicPartition
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.task.task import Task
from stateflow.runtime.worker.launch import rocks_opener
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

STORE = "state"


class Summing(sf.Operator[bytes, bytes, int]):
    """A running sum, one record at a time."""

    total: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: bytes, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - an operator's signature
        """Add."""
        self.total.set(self.total.get() + number_in(value))


def application(load: Workload, app_id: str, state_dir: Path) -> sf.App:
    """The work as a user would write it."""
    options = sf.AppOptions(
        state_dir=state_dir,
        partitions=load.partitions,
        guarantee=load.guarantee,
        commit_interval_seconds=load.commit_seconds,
        shared_writers=load.shared_writers,
    )
    app = sf.App(app_id, options=options)
    source = app.stream(app.topic(load.topic), co_partitioned=True)
    if load.work == "count":
        source.count(name=STORE)
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
    app = application(load, app_id, place)
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
        _step_until(worker, lambda: _processed(worker) >= load.warm_records)
        watch = Stopwatch()
        _step_until(worker, lambda: _processed(worker) >= load.records and _is_committed(worker))
        took = watch.took()
        found = {key: value for task in _stateful(worker) for key, value in _entries(task)}
    return _ran(load.timed_records, took, digest(found), _mode())


def restore(load: Workload, cluster: Cluster, place: Path) -> Ran:
    """Every partition of a changelog into a database of its own, as many at a time as a worker restores."""
    info = cluster.describe([load.topic])[load.topic]
    stores = [
        RocksTaskStores.open(
            task_directory(place, "bench", cluster.cluster_id, 0, f"{STORE}-{number}"),
            [STORE],
            RocksResources(),
        )
        for number in range(load.partitions)
    ]

    def one(number: int) -> int:
        log = TopicPartition(load.topic, number)
        plan = plan_task(
            cluster, f"{STORE}-{number}", {STORE: log}, {load.topic: info.topic_id}, stores[number]
        )
        restoration = Restoration(cluster, plan, stores[number])
        with closing(restoration):
            return restoration.run().records_total

    watch = Stopwatch()
    with ThreadPoolExecutor(sf.AppOptions().restore_threads) as threads:
        records = sum(threads.map(one, range(load.partitions)))
    took = watch.took()
    found = {key: value for each in stores for key, value in each.reader(STORE).scan()}
    for each in stores:
        each.close()
    return _ran(records, took, bytes_digest(found), _mode())


def read(load: Workload, cluster: Cluster) -> Ran:
    """Every record of the input in one reader, twice: the first time warms up."""
    logs = cluster.ranges([TopicPartition(load.topic, number) for number in range(load.partitions)])
    watch, seen, size_bytes = Stopwatch(), 0, 0
    for _ in range(2):
        with closing(cluster.reader()) as reader:
            reader.assign({partition: log.offset_first for partition, log in logs.items()})
            watch, seen, size_bytes = Stopwatch(), 0, 0
            while any(reader.position(partition) < log.offset_next for partition, log in logs.items()):
                for batch in reader.read(10_000, 0.1):
                    seen += len(batch)
                    size_bytes += sum(map(len, batch.keys)) + sum(map(len, batch.values))
            took = watch.took()
    return _ran(seen, took, f"{seen}:{size_bytes:x}", _mode())


def _step_until(worker: Worker, is_done: Callable[[], bool]) -> None:
    while not is_done():
        worker.step()


def _stateful(worker: Worker) -> list[Task]:
    return [task for task in worker.tasks.values() if task.wiring.changelogs]


def _processed(worker: Worker) -> int:
    return sum(task.records_total for task in _stateful(worker))


def _is_committed(worker: Worker) -> bool:
    return not any(task.is_dirty for task in worker.tasks.values())


def _entries(task: Task) -> Iterable[tuple[bytes, int]]:
    """What a task's store holds, keys as Kafka Streams writes them."""
    (store,) = task.wiring.stage.stores
    codec = from_description(task.wiring.entries[store.name].value_codec)
    return ((key, codec.decode(value)) for key, value in task.stores.reader(store.name).scan())


def _mode() -> str:
    """By what the work was done."""
    return "native" if native_state().in_use else "python"


def _ran(records: int, took: Took, result: str, mode: str) -> Ran:
    rss_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return Ran(records, took.seconds, took.cpu_seconds, result, mode, rss_bytes)


def main(arguments: list[str]) -> None:
    """Do the work, and tell."""
    load, place, app_id = Workload.decode(arguments[0]), Path(arguments[2]), arguments[3]
    with closing(connect(arguments[1])) as cluster:
        if load.work == "restore":
            ran = restore(load, cluster, place)
        elif load.work == "read":
            ran = read(load, cluster)
        else:
            ran = run(load, cluster, app_id, place)
    print(json.dumps(asdict(ran)))


if __name__ == "__main__":
    main(sys.argv[1:])
