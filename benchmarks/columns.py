"""Column expressions beside functions: CPU of a worker per JSON record, for the same filter, re-key step and sum.

python benchmarks/columns.py --records 60000 [--rounds 3]

Records are orders of eight fields, 240 bytes; what is read of them is the amount and the shop. Both ways run in turns,
on a real broker, and must give the same sums.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import stateflow as sf
from stateflow.clock import SystemClock
from stateflow.lab.costs.running import drained_worker
from stateflow.log.base import Cluster, TopicSpec
from stateflow.log.kafka import connect
from stateflow.runtime.settings import worker_settings
from stateflow.runtime.worker.prepare import prepare
from stateflow.testing.broker import open_test_broker

TOPIC, PARTITIONS, SHOPS = "orders", 4, 2000


def by_functions(orders: sf.Stream[Any, Any]) -> None:
    """Functions of the whole value."""
    paid = orders.filter(lambda order: order["cents"] > 0)
    paid.key_by(lambda order: order["shop"], name="by-shop").sum(lambda order: order["cents"], name="cents")


def by_columns(orders: sf.Stream[Any, Any]) -> None:
    """The same by expressions and names of fields."""
    orders.filter(sf.col("cents") > 0).key_by("shop", name="by-shop").sum("cents", name="cents")


WAYS: dict[str, Callable[[sf.Stream[Any, Any]], None]] = {"functions": by_functions, "columns": by_columns}


def order(number: int) -> dict[str, Any]:
    """One of the input's records."""
    return {
        "id": f"o-{number}",
        "shop": f"shop-{number * 7919 % SHOPS}",
        "customer": {"id": number % 1000, "name": "Ada Lovelace", "city": "London"},
        "cents": number % 5000,
        "currency": "EUR",
        "items": [{"sku": "a1", "n": 2}, {"sku": "b2", "n": 1}],
        "at": "2026-11-22T10:00:00Z",
        "paid": True,
    }


def fill(cluster: Cluster, records: int) -> None:
    """Write the input."""
    cluster.create([TopicSpec(TOPIC, PARTITIONS, 1, {})])
    writer = cluster.writer()
    for number in range(records):
        writer.send(TOPIC, None, sf.Json.encode(order(number)), partition=number % PARTITIONS)
    writer.commit()
    writer.close()


def measured(way: str, round_: int, brokers: str, place: Path, records: int) -> float:
    """CPU µs per record of the whole application, both of its stages."""
    app = sf.App(f"columns-{way}-{round_}", options=sf.AppOptions(state_dir=place, partitions=PARTITIONS))
    WAYS[way](app.stream(app.topic(TOPIC, value=sf.Json)))
    with closing(connect(brokers)) as cluster:
        wiring = prepare(cluster, app.topology(), app.options.guarantee, PARTITIONS, SystemClock())
        with drained_worker(cluster, wiring, worker_settings(app.options)) as (_, took):
            pass
    sums = sf.read_state(app.id, "cents", brokers=brokers).column("value").to_pylist()
    assert sum(map(int, sums)) == sum(number % 5000 for number in range(records)), "other sums"
    return took.cpu_seconds / records * 1e6


def main() -> None:
    """Measure in turns, and print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--brokers")
    asked = parser.parse_args()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with (
        open_test_broker(asked.brokers) as broker,
        tempfile.TemporaryDirectory(prefix="stateflow-columns-") as place,
    ):
        with closing(connect(broker.bootstrap)) as cluster:
            fill(cluster, asked.records)
        for round_ in range(asked.rounds):
            for way in WAYS:
                found[way].append(measured(way, round_, broker.bootstrap, Path(place), asked.records))
    for way, costs in found.items():
        print(f"{way:10} {statistics.median(costs):6.2f} µs of CPU per record")
    ratios = [one / two for one, two in zip(found["functions"], found["columns"], strict=True)]
    print(f"ratio      {statistics.median(ratios):6.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
