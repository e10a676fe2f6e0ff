"""What each verb costs: CPU of a worker per record, one verb after the other, on a real broker.

python benchmarks/verbs.py --records 60000 --keys 12000 [--only session,top]

The input is that of `stateflow bench join`: two topics of 16 + 100 bytes over ten minutes of event time, 4 partitions.
A figure of one run is good to a tenth or so; what it is for is to see a verb that costs many times what others do.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import stateflow as sf
from stateflow.clock import SystemClock
from stateflow.lab.bench.inputs import fill
from stateflow.lab.bench.workload import Workload, number_in, of, other_key_in
from stateflow.lab.costs.running import drained_worker
from stateflow.log.base import Cluster
from stateflow.log.kafka import connect
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare
from stateflow.testing.broker import open_test_broker

Bytes = sf.Stream[bytes, bytes]
MINUTE, SECONDS = timedelta(minutes=1), timedelta(seconds=3)


class Collecting(sf.Operator[bytes, bytes, int]):
    """Values of a key until a timer of ten seconds."""

    values: sf.ListOf[int] = sf.state()

    def on_record(self, value: bytes, ctx: sf.Context[int]) -> None:
        """Keep, and set a timer with the first."""
        self.values.append(number_in(value))
        if ctx.timer_due_ms("tell") is None:
            ctx.timer("tell", after=timedelta(seconds=10))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - it has but one
        """Tell the sum."""
        ctx.emit(sum(self.values))
        self.values.clear()


def _right(_left: bytes, right: bytes) -> bytes:
    return right


def _other(value: bytes) -> str:
    return other_key_in(value).decode()


def _first(left: bytes, _right: bytes) -> bytes:
    return left


VERBS: dict[str, Callable[[Bytes, Bytes], object]] = {
    "count": lambda left, _: left.count(name="v"),
    "sum": lambda left, _: left.sum(number_in, name="v"),
    "mean": lambda left, _: left.mean(number_in, name="v"),
    "reduce": lambda left, _: left.reduce(_first, name="v"),
    "tumbling": lambda left, _: left.window(sf.Tumbling(MINUTE)).sum(number_in, name="v"),
    "hopping": lambda left, _: left.window(sf.Hopping(MINUTE, timedelta(seconds=20))).sum(
        number_in, name="v"
    ),
    "sliding": lambda left, _: left.window(sf.Sliding(SECONDS)).sum(number_in, name="v"),
    "session": lambda left, _: left.window(sf.Session(SECONDS)).sum(number_in, name="v"),
    "dedup": lambda left, _: left.dedup(name="v", within=MINUTE, by=number_in),
    "in_order": lambda left, _: left.in_order(name="v", grace=SECONDS),
    "top": lambda left, _: left.top(3, name="v", by=number_in, item=_other),
    "suppress": lambda left, _: left.count(name="c").suppress(sf.Every(timedelta(seconds=10)), name="v"),
    "timers": lambda left, _: left.process(Collecting, name="v"),
    "join within": lambda left, right: left.join(right, _right, name="v", within=sf.Within(SECONDS)),
    "left join within": lambda left, right: left.left_join(
        right, lambda one, other: other or one, name="v", within=sf.Within(SECONDS), value=bytes
    ),
    "join table": lambda left, right: left.join(right.to_table(name="t"), _right, name="v"),
    "table join table": lambda left, right: left.to_table(name="t").join(
        right.to_table(name="u"), _right, name="v"
    ),
    "join as of": lambda left, right: left.join(
        right.to_table(name="t", history=MINUTE), _right, name="v", grace=SECONDS
    ),
}
WITH_RIGHT = frozenset(name for name in VERBS if "join" in name)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one verb took."""

    records: int
    cpu_seconds: float

    @property
    def cpu_us(self) -> float:
        """Per record."""
        return self.cpu_seconds / self.records * 1e6


def measured(verb: str, load: Workload, cluster: Cluster, place: Path) -> Cost:
    """Process the whole input by one verb."""
    app_id = f"verbs-{verb.replace(' ', '-')}"
    app = sf.App(app_id, options=sf.AppOptions(state_dir=place, partitions=load.partitions))
    inputs = load.inputs if verb in WITH_RIGHT else load.inputs[:1]
    streams = [app.stream(app.topic(topic), co_partitioned=True) for topic in inputs]
    VERBS[verb](streams[0], streams[-1])
    settings = worker_settings(app.options)
    wiring = prepare(cluster, app.topology(), app.options.guarantee, load.partitions, SystemClock())
    with drained_worker(cluster, wiring, settings) as (_, took):
        return Cost(load.records * len(inputs), took.cpu_seconds)


def main() -> None:
    """Measure, and print a line for each verb."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=60_000, help="of each input")
    parser.add_argument("--keys", type=int, default=12_000)
    parser.add_argument("--only", default="", help="verbs with commas between")
    parser.add_argument("--brokers")
    asked = parser.parse_args()
    load = of("join", asked.records, asked.keys)
    verbs = [name.strip() for name in asked.only.split(",") if name.strip()] or list(VERBS)
    with (
        open_test_broker(asked.brokers) as broker,
        closing(connect(broker.bootstrap)) as cluster,
        tempfile.TemporaryDirectory(prefix="stateflow-verbs-") as place,
    ):
        fill(cluster, load, [load.topic])
        print(f"{'verb':20} {'CPU µs per record':>18}")
        for verb in verbs:
            print(f"{verb:20} {measured(verb, load, cluster, Path(place)).cpu_us:18.1f}", flush=True)


if __name__ == "__main__":
    main()
