"""The whole study: what is lost by each way of keeping it, at several loads, by several jobs, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateflow.lab.recovery.failures import (
    MODES,
    Failure,
    FailureResult,
    Overhead,
    intervals_of,
    modes_of,
    run_failure,
    run_overhead,
)
from stateflow.lab.recovery.measure import RecoveryOptions, RecoveryStudy, measure_recovery
from stateflow.lab.recovery.word_site import Keeping
from stateflow.log.kafka import connect


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run."""

    parallel: RecoveryOptions
    modes: tuple[Failure, ...]
    by_interval: tuple[Failure, ...]
    backlog_lines: int
    backlog_words: tuple[int, ...]


def quick_plan(parallel: RecoveryOptions) -> Plan:
    """About five minutes."""
    return Plan(
        parallel=parallel,
        modes=tuple(modes_of(rate=1_000, words=5_000, before_seconds=10.0)),
        by_interval=tuple(intervals_of((2.0, 10.0), (200, 2_000), words=5_000, before_seconds=6.0)),
        backlog_lines=100_000,
        backlog_words=(1_000, 100_000),
    )


def full_plan(parallel: RecoveryOptions) -> Plan:
    """Intervals of 1 to 30 s, three loads, up to a million words: about half an hour."""
    return Plan(
        parallel=parallel,
        modes=tuple(modes_of(rate=2_000, words=50_000, before_seconds=30.0)),
        by_interval=tuple(
            intervals_of((1.0, 5.0, 10.0, 30.0), (200, 1_000, 4_000), words=50_000, before_seconds=10.0)
        ),
        backlog_lines=400_000,
        backlog_words=(100, 10_000, 1_000_000),
    )


@dataclass(slots=True)
class RecoveryFindings:
    """What came of it."""

    parallel: RecoveryStudy
    modes: list[FailureResult] = field(default_factory=list)
    by_interval: list[FailureResult] = field(default_factory=list)
    overhead: list[Overhead] = field(default_factory=list)

    @property
    def different(self) -> int:
        """Counts that were not the right ones."""
        failures = [result.different for result in (*self.modes, *self.by_interval)]
        return sum(failures) + sum(each.different for each in self.overhead)

    @property
    def is_right(self) -> bool:
        """True when every byte that was rebuilt, and every count, is what it must be."""
        return self.parallel.equal and not self.different

    def summary(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            **self.parallel.summary(),
            "equal": self.is_right,
            "different": self.different,
            "modes": [result.as_dict() for result in self.modes],
            "by_interval": [result.as_dict() for result in self.by_interval],
            "overhead": [each.as_dict() for each in self.overhead],
        }


def run_recovery(brokers: str, plan: Plan, folder: Path, tell: Callable[[str], None]) -> RecoveryFindings:
    """All of it, one after the other."""
    found = RecoveryFindings(measure_recovery(brokers, plan.parallel, folder, tell))
    cluster = connect(brokers)
    try:
        for failures, results in ((plan.modes, found.modes), (plan.by_interval, found.by_interval)):
            for failure in failures:
                results.append(run_failure(failure, cluster, brokers, folder))
                tell(_told(results[-1]))
        for words in plan.backlog_words:
            for mode, keeping in _ways_of_keeping().items():
                over = run_overhead(mode, keeping, plan.backlog_lines, words, cluster, brokers, folder)
                found.overhead.append(over)
                tell(f"{mode}, {words} words: {over.words_per_second:,} words/s, {over.different} different")
    finally:
        cluster.close()
    return found


def _ways_of_keeping() -> dict[str, Keeping]:
    return {
        "image + tail": Keeping(image_seconds=1.0),
        **{mode: MODES[mode] for mode in ("changelog", "upstream replay")},
    }


def _told(result: FailureResult) -> str:
    failure = result.failure
    images = f", an image every {failure.keeping.image_seconds:g} s" if failure.keeping.image_seconds else ""
    return (
        f"{failure.mode}{images}, {failure.rate} lines/s: running after {result.running_seconds:.1f} s,"
        f" recovered after {result.recovered_seconds:.1f} s, {result.different} different"
    )
