"""What one run of the demo found out: filled step by step, shown by ``page.py``, saved as JSON beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from compare import Comparison


@dataclass
class Step:
    """One step of the walk: what was done, how long it took, what was measured."""

    title: str
    sentence: str = ""
    seconds: float = 0.0
    numbers: list[tuple[str, str]] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


@dataclass
class TopicBytes:
    """Size of one changelog, all partitions, before and after the recommended policy."""

    topic: str
    before: int
    after: int


@dataclass
class Placement:
    """Keys of one store looked up on their partitions."""

    store: str
    keys: int
    misplaced: int


@dataclass
class Report:
    """Everything that a run measured. Nothing here is a constant: what was not reached stays empty."""

    started: str
    flights: int
    workers: int
    folder: str = ""
    """Where Kafka's data and the state were; gone at the end unless they were to be kept."""
    steps: list[Step] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    changelogs: list[TopicBytes] = field(default_factory=list)
    ranking: list[tuple[str, str, int]] = field(default_factory=list)
    """Tail number, aircraft, handed-on minutes."""
    delay_by_month: dict[str, dict[int, float]] = field(default_factory=dict)
    """Airport → month → mean departure delay in minutes, from the application's own results."""
    look: list[tuple[str, str]] = field(default_factory=list)
    """Where to look: what for, and the command or path."""
    records: int = 0
    restore_seconds: float | None = None
    repartition_seconds: float | None = None
    failure: str | None = None

    @property
    def mismatches(self) -> int:
        """Keys whose answer differs from the oracle's, and keys on a wrong partition."""
        wrong = sum(comparison.mismatches for comparison in self.comparisons)
        return wrong + sum(placement.misplaced for placement in self.placements)

    @property
    def ok(self) -> bool:
        """True when the run reached its end, compared something, and found nothing wrong."""
        compared = bool(self.comparisons) and all(comparison.equal for comparison in self.comparisons)
        placed = bool(self.placements) and all(p.keys > 0 and p.misplaced == 0 for p in self.placements)
        return self.failure is None and compared and placed

    @property
    def seconds(self) -> float:
        """Sum over the steps."""
        return sum(step.seconds for step in self.steps)

    def summary(self) -> dict[str, Any]:
        """The one JSON object that ends the demo's output."""
        return {
            "ok": self.ok,
            "records": self.records,
            "mismatches": self.mismatches,
            "restore_seconds": rounded(self.restore_seconds),
            "repartition_seconds": rounded(self.repartition_seconds),
            "changelog_bytes_before": sum(t.before for t in self.changelogs) if self.changelogs else None,
            "changelog_bytes_after": sum(t.after for t in self.changelogs) if self.changelogs else None,
            "keys_compared": sum(comparison.compared for comparison in self.comparisons),
            "keys_placed": sum(placement.keys for placement in self.placements),
            "seconds": rounded(self.seconds),
            "failure": self.failure,
        }

    def as_data(self) -> dict[str, Any]:
        """The whole report as plain data."""
        return {**asdict(self), "summary": self.summary()}


def rounded(seconds: float | None) -> float | None:
    """Seconds to the hundredth, or None for what was not measured."""
    return None if seconds is None else round(seconds, 2)
