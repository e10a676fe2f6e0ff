"""How long a repartition will take, as a range, and what that rests on.

The work is known beforehand; what a piece of it costs depends on the machine, the broker and the records. Runs that
were made here say that best: each phase of the new one is taken to deviate from the general figures as it did then.
Before there are any, a probe reads part of a partition as the audit does, which bounds what reading costs; the rest
are figures of machines between a busy one with two cores and an idle one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Phase = Literal["starting", "preparing", "moving", "auditing"]
PHASES: tuple[Phase, ...] = ("starting", "preparing", "moving", "auditing")
RUNS_MAX = 5
"""Newest runs that count."""


class Range(msgspec.Struct, frozen=True):
    """Between two numbers."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float | None = None) -> Range:
        """Each end by its own factor, or both by one."""
        return Range(self.low * low, self.high * (low if high is None else high))

    @property
    def middle(self) -> float:
        """The geometric mean: as many times the low end as the high end is of it."""
        return math.sqrt(self.low * self.high)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a repartition has to do."""

    engine: str
    lanes: int
    moves: int
    """Jobs that move: sub-ranges to be read, slices to be written, and partitions of unread records."""
    audits: int
    """Jobs that sum up what is there before and after."""
    slots: int
    """Offset slots to move; twice as many at most to sum up."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A repartition that was finished here, and the seconds of its phases."""

    app: str
    at_ms: int
    work: Work
    seconds: dict[Phase, float]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from start to end, and of each phase, between a low and a high guess."""

    total: Range
    phases: dict[Phase, Range]
    rests_on: str


class _Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine takes, between an idle machine and a busy one with two cores."""

    starting: Range
    move: Range
    """Seconds of a job that moves nothing: starting it, connecting, fencing, the first transaction."""
    audit: Range
    """Seconds of a job that sums up nothing."""


_ENGINES = {
    "spark": _Costs(starting=Range(4, 25), move=Range(0.15, 1.5), audit=Range(0.1, 0.8)),
    "processes": _Costs(starting=Range(0.5, 5), move=Range(0.1, 0.8), audit=Range(0.05, 0.4)),
    "local": _Costs(starting=Range(0, 0), move=Range(0.15, 1.0), audit=Range(0.05, 0.4)),
}
_PREPARING = Range(1.5, 8)
"""Looking at catalog and group, fencing the tasks, creating topics; with them the switch at the end."""
_PREPARING_PER_MOVE = Range(0.02, 0.15)
_SECONDS_PER_SLOT_MOVED = Range(1 / 400_000, 1 / 30_000)
_SECONDS_PER_SLOT_READ = Range(1 / 1_000_000, 1 / 80_000)
_MOVED_BY_READ = Range(1.1, 5.0)
"""What moving a slot costs, as a multiple of reading and hashing one: it is routed, written and committed as well."""
_READ_BY_PROBE = Range(0.8, 2.0)
"""Lanes that share cores and a broker are slower than a probe alone."""
_ONE_RUN_SPREAD, _SEVERAL_RUNS_SPREAD, _SPREAD_PER_DOUBLING = 1.4, 1.25, 0.15


def predict(
    work: Work, app: str, runs: Sequence[Run], probed_slots_per_second: float | None = None
) -> Prediction:
    """The range for ``work``: by the newest runs of the application here, else of others, else the probe."""
    general = _general(work, probed_slots_per_second)
    relevant = relevant_runs(work.engine, app, runs)
    phases = {phase: _learnt(phase, work, relevant) for phase in PHASES} if relevant else general
    total = Range(0, 0)
    for phase in PHASES:
        total += phases[phase]
    return Prediction(total=total, phases=phases, rests_on=_basis(app, relevant, probed_slots_per_second))


def relevant_runs(engine: str, app: str, runs: Sequence[Run]) -> list[Run]:
    """The newest runs on this engine: the application's own where there are any, else those of others."""
    found = sorted((run for run in runs if run.work.engine == engine), key=lambda run: run.at_ms)
    own = [run for run in found if run.app == app]
    return (own or found)[-RUNS_MAX:]


def _general(work: Work, probed_slots_per_second: float | None) -> dict[Phase, Range]:
    costs = _ENGINES.get(work.engine, _ENGINES["spark"])
    read, moved = _SECONDS_PER_SLOT_READ, _SECONDS_PER_SLOT_MOVED
    if probed_slots_per_second:
        read = _READ_BY_PROBE.times(1 / probed_slots_per_second)
        moved = _MOVED_BY_READ.times(read.low, read.high)
    move_lanes, audit_lanes = min(work.lanes, max(1, work.moves)), min(work.lanes, max(1, work.audits))
    return {
        "starting": costs.starting,
        "preparing": _PREPARING + _PREPARING_PER_MOVE.times(work.moves),
        "moving": (costs.move.times(work.moves) + moved.times(work.slots)).times(1 / move_lanes),
        "auditing": (costs.audit.times(work.audits) + read.times(work.slots, 2 * work.slots)).times(
            1 / audit_lanes
        ),
    }


def _learnt(phase: Phase, work: Work, runs: Sequence[Run]) -> Range:
    """The phase as the general figures have it, times what it took in each run against these figures."""
    expected = _general(work, None)[phase].middle
    before = [(run, _general(run.work, None)[phase].middle) for run in runs]
    factors = [run.seconds.get(phase, 0.0) / middle for run, middle in before if middle > 0]
    if not factors or expected <= 0:  # nothing is to be moved
        return Range(0, 0)
    spread = _ONE_RUN_SPREAD if len(factors) == 1 else _SEVERAL_RUNS_SPREAD
    doublings = min(abs(math.log2(expected / middle)) for _, middle in before if middle > 0)
    spread *= 1 + _SPREAD_PER_DOUBLING * doublings
    return Range(expected * min(factors) / spread, expected * max(factors) * spread)


def _basis(app: str, runs: Sequence[Run], probed_slots_per_second: float | None) -> str:
    if runs:
        of = app if runs[0].app == app else "other applications"
        times = "the last repartition" if len(runs) == 1 else f"the last {len(runs)} repartitions"
        return f"{times} of {of} on this machine"
    if probed_slots_per_second:
        return (
            f"a probe just now ({probed_slots_per_second:,.0f} slots/s read and hashed) and general figures, as none"
            " was made on this machine yet"
        )
    return "general figures: there is too little to probe, and none was made on this machine yet"


def phase_seconds(seconds: Mapping[str, float]) -> dict[Phase, float]:
    """The seconds of every phase, 0 for one that was left out."""
    return {phase: round(seconds.get(phase, 0.0), 3) for phase in PHASES}
