"""What a recommendation says: settings, predictions with their intervals, the trade-off, guards and alternatives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stateflow.compaction.advice.alternatives import Alternative
from stateflow.compaction.advice.objective import Objective
from stateflow.compaction.settings.topic_settings import Policy


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy is predicted to do, in the objective's terms."""

    policy: Policy
    size_mean_bytes: float
    size_max_bytes: float
    """Of the saw-tooth, at the measured update rate."""
    size_max_stressed_bytes: float
    """With the rate and key headroom of the objective, and survivors as large as they may be."""
    disk_max_bytes: float
    records_max: float
    restore_seconds: float
    """At the saw-tooth's top, at the measured rate."""
    restore_seconds_stressed: float
    """The same with the rate and key headroom of the objective."""
    restore_seconds_low: float
    restore_seconds_high: float
    cleaner_cores: float
    cleaner_cores_low: float
    cleaner_cores_high: float
    roll_cores: float
    cycle_seconds: float
    segments_per_cycle: int
    saturated: bool
    meets: bool
    """True when the objective holds, headroom and margin included."""
    cores_at_most: float | None = None
    """Where CPU is bounded: what the broker stays below at the highest load however busy its machine is, as well as the
    costs are known, with looks of idle threads.
    """


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of the trade-off between restore time and broker CPU."""

    restore_seconds: float
    cores: float
    segment_ms: int
    segment_bytes: int
    dirty_ratio: float


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to set, what it will do, and how sure that is."""

    topic: str
    objective: Objective
    reachable: bool
    """False when no policy of compaction alone holds the objective; ``best`` is then the closest."""
    current: Outcome
    best: Outcome
    runner_up: Outcome | None
    changes: dict[str, str]
    """Topic settings to apply, by Kafka name."""
    before: dict[str, str | None]
    """The topic's own value of each of them now; None where it inherits the broker's."""
    curve: tuple[CurvePoint, ...]
    guards: tuple[str, ...]
    reasons: tuple[str, ...]
    limits: tuple[str, ...]
    """What would change the recommendation."""
    alternatives: tuple[Alternative, ...]
    unknown: tuple[str, ...]
    hand_share: float | None = None
    """CPU as a share of what the best setting takes that people choose by hand; None when none of them holds the same
    bound, or where CPU is what is bounded.
    """
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Legal range of every setting that the search could turn, on this broker."""

    def to_data(self) -> dict[str, Any]:
        """As plain data for JSON; "never" is written as null."""
        data = msgspec.to_builtins(self)
        cleaned: dict[str, Any] = _without_infinities(data)
        return cleaned


def _without_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
