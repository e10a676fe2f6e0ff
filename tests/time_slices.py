"""How long a process of the tests keeps a core before another one's turn, where more of them compute than there are.

Linux takes turns every few milliseconds, and each turn begins with cold caches: with slices of 50 ms, five processes of
random histories on two cores took a sixth less CPU time. What waits for a broker or for Spark keeps the default, so
that it is woken at once when there is something to do.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

LONG_SECONDS = 0.05
DEFAULT_SECONDS = 0.0
"""The kernel's own choice."""

_SYSTEM_CALLS = {"x86_64": 314, "aarch64": 274}
"""``sched_setattr``, for which neither Python nor the C library has a function."""
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""``struct sched_attr`` as it first was: size, policy, flags, nice value, priority; runtime, deadline, period in ns."""
_KEEP_POLICY = 0x08


class TimeSlices:
    """The slice of this thread; threads and processes that it starts begin with the same."""

    def __init__(self) -> None:
        self._seconds = DEFAULT_SECONDS
        self._number = _SYSTEM_CALLS.get(os.uname().machine) if sys.platform == "linux" else None

    def ask_for(self, seconds: float) -> None:
        """Ask for a slice, where the kernel knows of such wishes (from 6.12 on) and grants them."""
        if self._number is not None and seconds != self._seconds:
            self._seconds = seconds
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            wish = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _KEEP_POLICY, nice, 0, round(seconds * 1e9), 0, 0)
            ctypes.CDLL(None).syscall(self._number, 0, wish, 0)
