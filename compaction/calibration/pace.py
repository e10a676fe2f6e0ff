"""How fast the machine is at the moment, told by the CPU time of a loop that is always the same.

On machines that are shared, the same work takes up to half as much CPU time again in one minute as in another: clock
rates change, and neighbours use the same caches. What was calibrated in one minute is compared with what was measured
in another by this.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

from stateflow.compaction.model.costs import Costs

_STEPS = 20_000
_TRIES = 5
_FELT_BY_PASSES = 0.5
"""A pass waits for memory much of its time, which this loop never does. Fitted to seven cells of two studies, during
which the loop took 0.6 to 0.9 of its usual time.
"""


def pass_slowness(loop_slowness: float) -> float:
    """How many times the usual CPU time a pass of the cleaner takes, when the loop takes so many times its own."""
    return math.pow(loop_slowness, _FELT_BY_PASSES)


def at_pace(costs: Costs, now_seconds: float) -> Costs:
    """The same costs on a machine that takes so long for the loop as this one does now."""
    slower = pass_slowness(now_seconds / costs.pace_seconds)
    return replace(costs.scaled(slower), pace_seconds=now_seconds)


def pace_now(usual_seconds: float) -> float:
    """What the loop takes when nothing disturbs it: the least of a few, which cost some milliseconds of CPU.

    In whole octaves of the usual time, so that a plan that is made twice is the same twice.
    """
    least = min(pace_seconds() for _ in range(_TRIES))
    return octave(least, usual_seconds)


def octave(seconds: float, usual_seconds: float) -> float:
    """The usual time, doubled or halved as often as comes nearest."""
    return usual_seconds * math.pow(2.0, round(math.log2(seconds / usual_seconds)))


def pace_seconds() -> float:
    """CPU seconds that this thread needs for the loop now: a third of a millisecond to a whole one."""
    started = time.thread_time()
    total = 0
    for step in range(_STEPS):
        total += step
    assert total == _STEPS * (_STEPS - 1) // 2
    return time.thread_time() - started
