"""What the order in which windows and timers fall due costs: CPU per record, with it and without, and bytes.

``python benchmarks/due_order.py [records]``. Each round runs both, so that the machine's other work is in both.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import stateflow as sf
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.topology.topology import Stage
from stateflow.state.due_order import TimerOrder, WindowOrder
from stateflow.store.derived import index_family
from stateflow.store.directory import task_directory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores

_ROUNDS = 3
_BATCH = 1_000
_BATCHES_PER_COMMIT = 10
_ONE = sf.Integer.encode(1)


class Silent(sf.Operator[str, int, int]):
    """Says when a key has been silent for an hour."""

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - the record alone matters
        """Set it anew."""
        ctx.timer("idle", after=timedelta(hours=1))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - there is one name
        """Say it."""
        ctx.emit(1)


def windows_stage() -> Stage:
    """Counts per key and minute."""
    app = sf.App("windows")
    stream = app.stream(app.topic("in", value=int)).key_by(str, name="by-key", key=str)
    counts = stream.window(sf.Tumbling(timedelta(minutes=1)), emit="on_close").count(name="counts")
    counts.to(app.topic("out", key=sf.WindowedKey(sf.String, 60_000), value=int))
    return app.topology().stages[1]


def timers_stage() -> Stage:
    """A timer per key."""
    app = sf.App("timers")
    stream = app.stream(app.topic("in", value=int)).key_by(str, name="by-key", key=str)
    stream.process(Silent, name="silent").to(app.topic("out", key=str, value=int))
    return app.topology().stages[1]


@contextmanager
def no_order() -> Iterator[None]:
    """Nothing is written to the order, so nothing falls due."""
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731 - a stand-in for several methods
    with (
        patch.object(WindowOrder, "add", nothing),
        patch.object(TimerOrder, "add", nothing),
        patch.object(TimerOrder, "remove", nothing),
    ):
        yield


@contextmanager
def opened(stage: Stage) -> Iterator[tuple[StageBench, RocksTaskStores]]:
    """The stage on a database of its own."""
    with tempfile.TemporaryDirectory(prefix="stateflow-due-") as scratch:
        place = task_directory(Path(scratch), "bench", "bench", 0, "bench-0")
        stores = RocksTaskStores.open(place, [store.name for store in stage.stores], RocksResources())
        bench = StageBench(stage, stores)  # type: ignore[arg-type]  # any task stores do
        bench.advance(0)
        yield bench, stores
        stores.close()


def fed(bench: StageBench, records: int, per_key: int) -> float:
    """CPU seconds for so many records, each key coming so often: all keys, then all again."""
    keys = records // per_key
    began = time.process_time()
    for number, first in enumerate(range(0, records, _BATCH), start=1):
        rows: list[Any] = [
            (b"customer-%08d" % (place % keys), _ONE, place // keys) for place in range(first, first + _BATCH)
        ]
        bench.feed(*rows)
        if number % _BATCHES_PER_COMMIT == 0:
            bench.commit()
    bench.commit()
    return time.process_time() - began


def closed(bench: StageBench, at_ms: int) -> tuple[float, float]:
    """CPU seconds for all that is due, and for the longest turn."""
    began, longest, is_left = time.process_time(), 0.0, True
    bench.context.watermark_ms = bench.context.others_ms = at_ms
    while is_left:
        turn = time.process_time()
        is_left = bool(bench.pipeline.advance(at_ms))
        longest = max(longest, time.process_time() - turn)
        bench.commit()
        bench.context.sent.clear()
    return time.process_time() - began, longest


def measure(name: str, stage: Stage, records: int, per_key: int) -> None:
    """Print one line per round."""
    store = stage.stores[-1].name
    for _ in range(_ROUNDS):
        with no_order(), opened(stage) as (bench, _stores):
            without_seconds = fed(bench, records, per_key)
        with opened(stage) as (bench, stores):
            with_seconds = fed(bench, records, per_key)
            stores.flush()
            on_disk = stores.size(index_family(store)).files_bytes
            closing_seconds, longest_seconds = closed(bench, 10**10)
        due = records // per_key
        print(
            f"{name}, {per_key} records each: {without_seconds / records * 1e6:.1f} us per record without,"
            f" {with_seconds / records * 1e6:.1f} with; {on_disk / due:.0f} bytes on disk each;"
            f" closing {closing_seconds / due * 1e6:.1f} us each, the longest turn {longest_seconds * 1e3:.0f} ms"
        )


def main() -> None:
    """Windows and timers, new with each record and with every tenth."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    for per_key in (1, 10):
        measure("windows", windows_stage(), records, per_key)
        measure("timers", timers_stage(), records, per_key)


if __name__ == "__main__":
    main()
