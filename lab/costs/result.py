"""The measured costs of one type of state, and the study as data."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of this process and wall time per operation, µs: the Kafka client included, the broker not."""

    cpu_us: float
    wall_us: float


@dataclass(frozen=True, slots=True)
class Run:
    """One type in one run."""

    update: Cost
    """Per record: the operator, the changelog, the transaction, the local store; the re-key stage before it too."""
    changelog_records: float
    """Changelog records per update: below 1 where a commit coalesces several."""
    changelog_bytes: float
    """Key and value bytes in the changelog per update."""
    query: Cost
    """Per key: everything that is held for it, read from the disk store and decoded."""
    entries: int
    """Entries of the store, over all keys."""
    repartition: Cost
    """Per entry: moved to another number of partitions and audited."""
    merge: Cost | None
    """Per key: two states of it made into one; None where the type leaves that undefined."""
    checkpoint_seconds: float
    """Making and uploading the first image of all tasks, wall time."""
    checkpoint_bytes: int
    delta_bytes: int
    """Uploaded by the next image, after one key in a hundred has changed."""


@dataclass(frozen=True, slots=True)
class KindResult:
    """One type over all runs."""

    kind: str
    write: str
    runs: tuple[Run, ...]

    def median(self, pick: str, part: str | None = None) -> float:
        """Median over the runs of a field, or of a part of it."""
        return statistics.median(self._values(pick, part))

    def spread(self, pick: str, part: str | None = None) -> tuple[float, float]:
        """Least and greatest over the runs."""
        values = self._values(pick, part)
        return min(values), max(values)

    def _values(self, pick: str, part: str | None) -> list[float]:
        found = [value for run in self.runs if (value := getattr(run, pick)) is not None]
        return [float(value if part is None else getattr(value, part)) for value in found]


@dataclass(frozen=True, slots=True)
class StatesStudy:
    """All types, beside the same pipeline without state."""

    updates: int
    keys: int
    baseline: tuple[Cost, ...]
    """Per record, without state: before and after the types of each run."""
    results: tuple[KindResult, ...]
    seconds: float

    @property
    def baseline_cpu_us(self) -> float:
        """Median CPU per record of the pipeline without state, µs."""
        return statistics.median(cost.cpu_us for cost in self.baseline)

    @property
    def baseline_spread_us(self) -> float:
        """Between the least and the greatest of it: differences below this mean nothing."""
        costs = [cost.cpu_us for cost in self.baseline]
        return max(costs) - min(costs)

    def update_cpu_us(self, result: KindResult) -> float:
        """Median CPU per update beyond the baseline, µs."""
        return result.median("update", "cpu_us") - self.baseline_cpu_us

    def summary(self) -> dict[str, Any]:
        """The study as one JSON object: medians, spreads, and every run."""
        return {
            "updates": self.updates,
            "keys": self.keys,
            "runs": len(self.baseline) // 2,
            "seconds": round(self.seconds, 1),
            "baseline_cpu_us": round(self.baseline_cpu_us, 2),
            "baseline_spread_us": round(self.baseline_spread_us, 2),
            "types": {result.kind: self._of(result) for result in self.results},
        }

    def _of(self, result: KindResult) -> dict[str, Any]:
        least, greatest = result.spread("update", "cpu_us")
        update = self.update_cpu_us(result)
        return {
            "write": result.write,
            "update_cpu_us": round(update, 2),
            "update_cpu_us_spread": [round(at - self.baseline_cpu_us, 2) for at in (least, greatest)],
            "changelog_records_per_update": round(result.median("changelog_records"), 3),
            "changelog_bytes_per_update": round(result.median("changelog_bytes"), 1),
            "query_us": round(result.median("query", "wall_us"), 1),
            "entries": round(result.median("entries")),
            "repartition_cpu_us": round(result.median("repartition", "cpu_us"), 2),
            "merge_us": None if result.runs[0].merge is None else round(result.median("merge", "wall_us"), 2),
            "checkpoint_seconds": round(result.median("checkpoint_seconds"), 3),
            "checkpoint_bytes": round(result.median("checkpoint_bytes")),
            "delta_bytes": round(result.median("delta_bytes")),
            "each_run": [asdict(run) for run in result.runs],
        }


def rows(study: StatesStudy) -> Sequence[Sequence[str]]:
    """The study as a table: one row per type."""
    shown = study.summary()["types"]
    return [
        [
            kind,
            f"{one['update_cpu_us']:.1f}",
            f"{one['changelog_bytes_per_update']:.0f}",
            f"{one['query_us']:.0f}",
            f"{one['repartition_cpu_us']:.1f}",
            "–" if one["merge_us"] is None else f"{one['merge_us']:.1f}",
            f"{1000 * one['checkpoint_seconds']:.0f}",
            f"{one['checkpoint_bytes'] / 1e3:.0f}",
            f"{one['delta_bytes'] / 1e3:.0f}",
        ]
        for kind, one in shown.items()
    ]


HEADER = (
    "type",
    "update µs CPU",
    "log B/update",
    "query µs/key",
    "move µs/entry",
    "merge µs/key",
    "image ms",
    "image kB",
    "next image kB",
)
