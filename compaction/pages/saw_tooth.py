"""A topic's saw-tooth, now against recommended: how long a restore would take from pass to pass, and the bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stateflow.compaction.advice.recommendation import Outcome, Recommendation
from stateflow.compaction.pages.charts import Axis, Series, line_chart, span
from stateflow.compaction.sensing.measurement import Measurement
from stateflow.compaction.settings.units import duration

TEETH_MIN, TEETH_MAX = 3, 40
"""Of the quicker one: enough to see that it is one, few enough to tell apart."""
_LOGARITHMIC_FROM = 5.0
"""When the present saw-tooth goes higher than this times the bound, only a logarithmic axis shows both."""
_STEPS = 8
"""Points of a tooth's rise, which is a curve on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class SawTooth:
    """Predicted restore time of the log over time: up to ``high`` within ``period_seconds``, then down to ``low``."""

    low: float
    high: float
    """Restore seconds; infinite when the topic is never cleaned."""
    period_seconds: float

    def points(self, seconds: float, slope: float, begin: float) -> list[tuple[float, float]]:
        """The line over so many seconds, from the height ``begin`` on.

        One that is never cleaned rises by ``slope`` a second for ever.
        """
        if not math.isfinite(self.high):
            return [
                (seconds * step / _STEPS, begin + slope * seconds * step / _STEPS)
                for step in range(_STEPS + 1)
            ]
        rise = max(self.high - self.low, 1e-12)
        phase = min(max((begin - self.low) / rise, 0.0), 1.0)
        found, at = list[tuple[float, float]](), -phase * self.period_seconds
        while at < seconds:
            first, last = max(at, 0.0), min(at + self.period_seconds, seconds)
            for step in range(_STEPS + 1):
                when = first + (last - first) * step / _STEPS
                found.append((when, self.low + rise * (when - at) / self.period_seconds))
            at += self.period_seconds
        return found


def saw_tooth_chart(measured: Measurement, found: Recommendation) -> tuple[str, str]:
    """The chart as SVG, and its caption."""
    now, best = _tooth(measured, found, found.current), _tooth(measured, found, found.best)
    bound = found.objective.restore_within_seconds
    seconds = _window([one.period_seconds for one in (now, best) if math.isfinite(one.high)])
    slope = _restore_seconds(measured, found, measured.updates_per_second) - _restore_seconds(
        measured, found, 0
    )
    begin = _restore_seconds(measured, found, measured.records)
    lines = [
        Series("now", now.points(seconds, slope, begin), 0),
        Series("recommended" if found.reachable else "closest", best.points(seconds, slope, best.low), 1),
    ]
    heights = [value for line in lines for _, value in line.points if value > 0]
    logarithmic = max(heights) > _LOGARITHMIC_FROM * bound
    chart = line_chart(
        "predicted restore time from pass to pass",
        lines,
        Axis("seconds", 0, seconds),
        Axis("restore, s", *span([*heights, bound], logarithmic=logarithmic), logarithmic=logarithmic),
        (f"bound: {duration(bound)}", bound),
    )
    return chart, (
        f"predicted: how long a restore would take that begins at that moment. With the settings in force it comes to "
        f"{duration(now.high)}, with the {lines[1].name} ones to {duration(best.high)}"
    )


def _tooth(measured: Measurement, found: Recommendation, outcome: Outcome) -> SawTooth:
    if not math.isfinite(outcome.size_max_bytes):
        return SawTooth(0.0, math.inf, math.inf)
    brought = measured.updates_per_second * outcome.cycle_seconds
    rise = _restore_seconds(measured, found, brought) - _restore_seconds(measured, found, 0)
    high = outcome.restore_seconds
    return SawTooth(max(0.0, high - rise), high, outcome.cycle_seconds)


def _restore_seconds(measured: Measurement, found: Recommendation, records: float) -> float:
    return measured.restore.seconds(records / found.objective.parallelism(measured.partitions))


def _window(periods: list[float]) -> float:
    """As long as shows a few teeth of the slower, unless the quicker one's would run into one another."""
    if not periods:
        return 60.0
    return min(max(TEETH_MIN * max(periods), 1e-3), TEETH_MAX * min(periods))
