"""How fast the machine is at the moment, told by the CPU time of a loop that is always the same.

On machines that are shared, the same work takes up to half as much CPU time again in one minute as in another: clock
rates change, and neighbours use the same caches. What was calibrated in one minute is compared with what was measured
in another by this.
"""

from __future__ import annotations

import math
import time

_STEPS = 20_000
_FELT_BY_PASSES = 0.5
"""A pass waits for memory much of its time, which this loop never does. Fitted to seven cells of two studies, during
which the loop took 0.6 to 0.9 of its usual time.
"""


def pass_slowness(loop_slowness: float) -> float:
    """How many times the usual CPU time a pass of the cleaner takes, when the loop takes so many times its own."""
    return math.pow(loop_slowness, _FELT_BY_PASSES)


def pace_seconds() -> float:
    """CPU seconds that this thread needs for the loop now: about a millisecond."""
    started = time.thread_time()
    total = 0
    for step in range(_STEPS):
        total += step
    assert total == _STEPS * (_STEPS - 1) // 2
    return time.thread_time() - started
