"""Random logs on random brokers, live: loads of all kinds under policies and cleaner settings that are legal there."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stateflow.compaction.calibration.cell import Cell
from stateflow.compaction.control.broker_settings import BACKOFF, BUFFER
from stateflow.compaction.model.streams import RateStep, Stream
from stateflow.compaction.settings.topic_settings import CleanerSettings, Policy
from stateflow.connectors.broker import EmbeddedKafka
from stateflow.connectors.broker.node import PRODUCTION_JVM, SMALL_JVM
from stateflow.lab.compaction.bench import kept
from stateflow.lab.compaction.live import LiveRun, run_live, warm_up
from stateflow.lab.compaction.random_cells import KINDS
from stateflow.lab.compaction.stock_result import STOCK

_VALUE_BYTES = (300, 700)
_BACKOFFS_MS = (15_000, 15_000, 5000, 15_000, 1000, 15_000, 15_000, 250, 15_000, 30_000)
"""Of one broker after another: Kafka's own most of the time."""
_BUFFERS_BYTES = (STOCK.dedupe_buffer_bytes, STOCK.dedupe_buffer_bytes, 16 << 20)
_OFTEN_MS, _SMALL_BUFFER_BYTES = 1000, 4 << 20
"""A thread that looks so often, or has no server compiler, is never idle where it fills the stock buffer for twenty
logs: then the next pass follows at once, and no backoff is seen.
"""


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """Logs that share a broker."""

    number: int
    cleaner: CleanerSettings
    production_jvm: bool
    """As Kafka's own scripts start it; else the small one of embedded brokers, without the server compiler."""
    cells: tuple[Cell, ...]

    @property
    def broker(self) -> EmbeddedKafka:
        """One for it, not started."""
        return stock_broker(self.cleaner, production_jvm=self.production_jvm)


def stock_broker(cleaner: CleanerSettings = STOCK, *, production_jvm: bool = False) -> EmbeddedKafka:
    """A broker with Kafka's own cleaner settings, or with others, not started."""
    overrides = {BACKOFF: cleaner.backoff_ms, BUFFER: cleaner.dedupe_buffer_bytes}
    return EmbeddedKafka(overrides=overrides, jvm=PRODUCTION_JVM if production_jvm else SMALL_JVM)


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How many logs are checked, how many of them at a time on one broker, and for how long."""

    cells: int = 200
    together: int = 20
    seconds: float = 100.0
    warm_seconds: float = 25.0
    seed: int = 1

    def batches(self, *, stock: bool) -> list[LiveBatch]:
        """All brokers as Kafka comes; or with their cleaners' settings drawn, and every other one in a small JVM."""
        cells = list(live_cells(self.seed, self.cells, self.seconds, self.warm_seconds))
        parts = [cells[at : at + self.together] for at in range(0, self.cells, self.together)]
        found = [LiveBatch(number, STOCK, True, tuple(part)) for number, part in enumerate(parts, start=1)]
        return found if stock else [_drawn(batch) for batch in found]


def _drawn(batch: LiveBatch) -> LiveBatch:
    backoff_ms = _BACKOFFS_MS[batch.number % len(_BACKOFFS_MS)]
    buffer_bytes = _BUFFERS_BYTES[batch.number % len(_BUFFERS_BYTES)]
    production_jvm = batch.number % 2 == 1
    if backoff_ms <= _OFTEN_MS or not production_jvm:
        buffer_bytes = _SMALL_BUFFER_BYTES
    cleaner = replace(STOCK, backoff_ms=backoff_ms, dedupe_buffer_bytes=buffer_bytes)
    return replace(batch, cleaner=cleaner, production_jvm=production_jvm)


def live_cells(seed: int, count: int, seconds: float, warm_seconds: float) -> Iterator[Cell]:
    """Random loads of all kinds under random policies that are legal on a broker, slow enough to run side by side."""
    source = random.Random(seed)  # noqa: S311 - repeatable on purpose
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        stream = Stream(
            keys=source.choice((100, 300, 1000)),
            partitions=source.choice((1, 1, 2)),
            rates=(RateStep(0.0, source.choice((60.0, 120.0, 200.0))),),
            seconds=seconds,
            zipf_exponent=0.99 if kind == "zipf" else None,
            value_bytes=_VALUE_BYTES,
            state="retain-all" if kind == "bursts" else "fold-left",
            window_seconds=source.choice((5.0, 10.0)),
            seed=source.randrange(1 << 30),
        )
        policy = Policy(
            segment_ms=round(math.exp(source.uniform(math.log(500), math.log(16_000)))),
            segment_index_bytes=65_536,
            dirty_ratio=source.choice((0.01, 0.1, 0.33, 0.5)),
            delete_retention_ms=5000,
            file_delete_delay_ms=1000,
        )
        yield Cell(f"{kind} {number + 1}", policy, stream, warm_seconds, 0)


def measured(folder: Path, progress: Callable[[str], None], batch: LiveBatch, of: int) -> LiveRun:
    """What a batch showed on a broker of its own; kept in the folder, so that an interrupted check goes on."""

    def run() -> LiveRun:
        with batch.broker as kafka:
            warm_up(kafka)
            return run_live(kafka, batch.cells)

    name = f"live logs, part {batch.number} of {of}"
    return kept(folder, progress, name, asdict(batch), LiveRun, run)
