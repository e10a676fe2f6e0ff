"""How fast the machine is at the moment: the CPU time of two small pieces of work that are always the same.

On machines that are shared, the same work takes up to twice as much CPU time in one minute as in another: clock rates
change, and neighbours use the same caches. What was calibrated in one minute is compared with what was measured in
another by this. Costs follow it by their kind: a pass calls the kernel and reads what no cache holds; zeros over its
dedupe buffer take a core (in a JVM with the client compiler only) or memory (with both) and nothing else. So a loop
is timed, as it comes and at its best, and zeros over more memory than caches hold.
"""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from stateflow.compaction.model.costs import Costs, Pace

_STEPS = 20_000
_FILLED_BYTES = 64 << 20
_TRIES = 3
_STEPS_PER_OCTAVE = 2
_FELT_BY_PASSES = 0.5
"""A pass waits for memory and the kernel much of its time, which the loop never does. Of 0.5 to 1 this fitted 32 runs
best, during which the loop took 1.1 to 3.5 times its usual time.
"""


class PaceProbe:
    """Tells the pace again and again, and keeps the memory that it fills; a thread needs one of its own."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(_FILLED_BYTES)
        self._filling_seconds()  # the first touch of each page is the kernel's work

    def now(self) -> Pace:
        """What the work takes now, which costs five milliseconds of CPU."""
        loops = [loop_seconds() for _ in range(_TRIES)]
        return Pace(loops[0], min(loops), self._filling_seconds())

    def undisturbed(self) -> Pace:
        """What it takes when nobody else uses the core: the least of a few."""
        found = [self.now() for _ in range(_TRIES)]
        loop = min(one.steady_loop_seconds for one in found)
        return Pace(loop, loop, min(one.memory_seconds for one in found))

    def _filling_seconds(self) -> float:
        started = time.thread_time()
        ctypes.memset(self._memory, 0, _FILLED_BYTES)
        return time.thread_time() - started


def pass_slowness(loop_slowness: float) -> float:
    """How many times the usual CPU time a pass of the cleaner takes, when the loop takes so many times its own."""
    return math.pow(loop_slowness, _FELT_BY_PASSES)


def fill_slowness(costs: Costs, now: Pace) -> float:
    """The same of filling the dedupe buffer with zeros, which is the loop's kind of work, or memory's."""
    if costs.fill_awaits_memory:
        return now.memory_seconds / costs.pace.memory_seconds
    return now.steady_loop_seconds / costs.pace.steady_loop_seconds


def at_pace(costs: Costs, now: Pace) -> Costs:
    """The same costs on a machine as fast as this."""
    slower = costs.scaled(pass_slowness(now.loop_seconds / costs.pace.loop_seconds))
    filling = costs.fill_seconds_per_byte * fill_slowness(costs, now)
    return replace(slower, fill_seconds_per_byte=filling, pace=now)


def usual(paces: Sequence[Pace]) -> Pace:
    """Of a run: the median, and of the loop also the best, since what disturbs it hardly disturbs zeros."""
    loops, steady, memory = zip(*paces, strict=True)
    return Pace(statistics.median(loops), min(steady), statistics.median(memory))


def in_steps(now: Pace, of: Pace) -> Pace:
    """In steps of half an octave from another, so that a plan that is made twice is the same twice."""
    return Pace(*(nearest_step(one, usual) for one, usual in zip(now, of, strict=True)))


def nearest_step(seconds: float, usual_seconds: float) -> float:
    """The usual time, times or by √2 as often as comes nearest."""
    steps = round(_STEPS_PER_OCTAVE * math.log2(seconds / usual_seconds))
    return usual_seconds * math.pow(2.0, steps / _STEPS_PER_OCTAVE)


def loop_seconds() -> float:
    """CPU seconds that this thread needs for the loop now: a third of a millisecond to a whole one."""
    started = time.thread_time()
    total = 0
    for step in range(_STEPS):
        total += step
    assert total == _STEPS * (_STEPS - 1) // 2
    return time.thread_time() - started
