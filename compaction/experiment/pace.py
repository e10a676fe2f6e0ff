"""How fast the machine is at the moment, told by the CPU time of a loop that is always the same.

On machines that are shared, the same work takes up to half as much CPU time again in one minute as in another: clock
rates change, and neighbours use the same caches. What was calibrated in one minute is compared with what was measured
in another by this.
"""

from __future__ import annotations

import time

_STEPS = 20_000


def pace_seconds() -> float:
    """CPU seconds that this thread needs for the loop now: about a millisecond."""
    started = time.thread_time()
    total = 0
    for step in range(_STEPS):
        total += step
    assert total == _STEPS * (_STEPS - 1) // 2
    return time.thread_time() - started
