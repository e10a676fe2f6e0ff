"""What a study of time came to, as one JSON object."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

SHOWN_MAX = 20


@dataclass(slots=True)
class TimeReport:
    """Logs, what was done with them, and where anything differed. ``different`` decides about the exit code."""

    logs: int = 0
    late: int = 0
    """Records that were late for a window, each counted once per aggregate."""
    compared_with_streams: int = 0
    """Logs of which Kafka Streams was asked."""
    different: int = 0
    """Logs of which any part differed."""
    cases: Counter[str] = field(default_factory=Counter)
    """Operator → comparisons."""
    wrong: Counter[str] = field(default_factory=Counter)
    """Operator → comparisons that differed."""
    batchings: Counter[str] = field(default_factory=Counter)
    guarantees: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    """Crashes, kills that struck, repartitions and so on."""
    failed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def merge(self, other: TimeReport) -> None:
        """Add another part of the same study."""
        self.logs += other.logs
        self.late += other.late
        self.compared_with_streams += other.compared_with_streams
        self.different += other.different
        self.cases += other.cases
        self.wrong += other.wrong
        self.batchings += other.batchings
        self.guarantees += other.guarantees
        self.acts += other.acts
        self.failed += other.failed

    def as_dict(self, study: str, mode: str, seed: int) -> dict[str, Any]:
        """The object; what each field means is in ``docs/exactly-once.md``."""
        return {
            "study": study,
            "mode": mode,
            "seed": seed,
            "logs": self.logs,
            "different": self.different,
            "cases": self.cases.total(),
            "compared_with_kafka_streams": self.compared_with_streams,
            "by_operator": {
                name: {"cases": count, "different": self.wrong[name]}
                for name, count in sorted(self.cases.items())
            },
            "late": self.late,
            "batchings": dict(sorted(self.batchings.items())),
            "guarantees": dict(sorted(self.guarantees.items())),
            "acts": dict(sorted(self.acts.items())),
            "failed": self.failed[:SHOWN_MAX],
            "left_out": self.left_out,
            "seconds": round(self.seconds, 1),
        }
