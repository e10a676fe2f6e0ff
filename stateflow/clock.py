"""Time, passed in: the system's clock, and one that tests move by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the code may know about time. Nothing else in the library reads the wall clock."""

    def now_ms(self) -> int:
        """Wall-clock time, ms since 1970 UTC."""
        ...

    def monotonic_seconds(self) -> float:
        """Seconds that never run backwards, from an arbitrary start."""
        ...

    def thread_cpu_seconds(self) -> float:
        """CPU that the calling thread has taken, from an arbitrary start."""
        ...

    def pause(self, seconds: float) -> None:
        """Let so much time pass, on this thread."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Wall-clock time, ms since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_seconds(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def thread_cpu_seconds(self) -> float:
        """What the calling thread has taken, in user and system mode."""
        return time.thread_time()

    def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._start_ms = now_ms
        self._cpu_seconds = 0.0

    def now_ms(self) -> int:
        """The time it was moved to."""
        return self._now_ms

    def monotonic_seconds(self) -> float:
        """Seconds it was moved by."""
        return (self._now_ms - self._start_ms) / 1000

    def thread_cpu_seconds(self) -> float:
        """As if work cost nothing, unless ``spend_cpu`` says so."""
        return self._cpu_seconds

    def pause(self, seconds: float) -> None:
        """Return at once: only ``advance`` moves this clock."""

    def spend_cpu(self, seconds: float) -> None:
        """Whichever thread asks has taken so much more."""
        self._cpu_seconds += seconds

    def advance(self, *, ms: int = 0, seconds: float = 0.0) -> None:
        """Move forward; a negative step is a bug."""
        step_ms = ms + round(seconds * 1000)
        assert step_ms >= 0, "a clock never runs backwards"
        self._now_ms += step_ms
