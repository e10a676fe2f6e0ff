"""How far a restore is, in offset slots: the only measure that is known beforehand and reaches its end."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

_BAR_CELLS = 24
_LINE_INTERVAL_SECONDS = 5.0
_DRAW_INTERVAL_SECONDS = 0.1
WORTH_SHOWING_SECONDS = 1.0
"""What is done sooner needs no progress bar."""
_BASIS_SECONDS = 2.0
"""Work must have been seen for so long before the time that is left can be told."""
_WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Progress:
    """A restore at one moment, of one task or of several together.

    ``slots`` are offset slots: what compaction removed and transaction markers count as done when passed.
    ``records_total`` and ``bytes_total`` count what was actually read, keys and values.
    """

    name: str
    slots_done: int
    slots_total: int
    records_total: int
    bytes_total: int
    seconds: float

    @property
    def fraction(self) -> float:
        """Between 0 and 1; 1 when there was nothing to do."""
        return self.slots_done / self.slots_total if self.slots_total else 1.0

    @property
    def slots_remaining(self) -> int:
        """Offset slots still to be covered."""
        return self.slots_total - self.slots_done

    @property
    def records_per_second(self) -> float:
        """Records read per second so far; 0 before anything was read."""
        return self.records_total / self.seconds if self.seconds > 0 else 0.0


class Pace:
    """The rate of the last seconds of some work, counted from the first of it that was seen done.

    What comes before that, connecting and waiting for the first answer, says nothing about the rest: a mean over it
    told hours at the beginning of a restore of seconds. Not thread-safe.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        """Seconds and what was done then, at each moment when it had become more; the oldest begins the window."""
        self._now_seconds = 0.0

    def observe(self, seconds: float, done: int) -> None:
        """Note how much is done; ``seconds`` of any clock that only goes on. Work that has gone back begins anew."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._now_seconds = seconds
        if done > 0 and (not self._seen or done > self._seen[-1][1]):
            self._seen.append((seconds, done))
        while len(self._seen) > 2 and self._seen[1][0] <= seconds - _WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """The rate; None before there is a basis for one."""
        if len(self._seen) < 2 or self._now_seconds - self._seen[0][0] < _BASIS_SECONDS:
            return None
        return (self._seen[-1][1] - self._seen[0][1]) / (self._now_seconds - self._seen[0][0])

    def eta_seconds(self, remaining: int) -> float | None:
        """Time that the rest takes at this rate; None before there is one."""
        rate = self.per_second
        return 0.0 if not remaining else None if rate is None else remaining / rate


def combined(name: str, parts: list[Progress], seconds: float) -> Progress:
    """Several restores that run side by side, as one over ``seconds`` of wall time."""
    return Progress(
        name,
        sum(part.slots_done for part in parts),
        sum(part.slots_total for part in parts),
        sum(part.records_total for part in parts),
        sum(part.bytes_total for part in parts),
        seconds,
    )


def render(progress: Progress, eta_seconds: float | None = None) -> str:
    """One line: bar, percent, slots, rate, and the time left where that is known."""
    filled = int(progress.fraction * _BAR_CELLS)
    bar = "█" * filled + "·" * (_BAR_CELLS - filled)
    eta = "" if eta_seconds is None or not progress.slots_remaining else f"  ETA {_duration(eta_seconds)}"
    return (
        f"{progress.name} [{bar}] {progress.fraction:4.0%}  {progress.slots_done:,}/{progress.slots_total:,}"
        " offsets"
        f"  {progress.records_per_second:,.0f} rec/s  {progress.bytes_total / 1e6:,.1f} MB{eta}"
    )


class ProgressLine:
    """One line of a terminal that is drawn anew; elsewhere a plain line every few seconds."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_terminal = self._out.isatty()
        self._drawn_seconds: float | None = None
        self._width = 0

    @property
    def is_drawn(self) -> bool:
        """Whether there is a line."""
        return self._drawn_seconds is not None

    def update(self, seconds: float, line: Callable[[], str]) -> None:
        """Draw the line, unless that was done a moment ago; ``seconds`` of any clock that only goes on."""
        interval = _DRAW_INTERVAL_SECONDS if self._is_terminal else _LINE_INTERVAL_SECONDS
        if self._drawn_seconds is None or seconds - self._drawn_seconds >= interval:
            self._drawn_seconds = seconds
            self._draw(line())

    def finish(self, line: str) -> None:
        """Draw the last line, and leave it."""
        self._draw(line)
        self._leave()

    def leave(self) -> None:
        """Leave the line as it is, if there is one: what is written next begins another."""
        if self.is_drawn:
            self._leave()

    def _leave(self) -> None:
        if self._is_terminal:
            self._out.write("\n")
            self._out.flush()
        self._drawn_seconds, self._width = None, 0

    def _draw(self, line: str) -> None:
        if self._is_terminal:
            self._out.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._out.write(line + "\n")
        self._out.flush()


class ProgressBar:
    """How far a restore is, in a ``ProgressLine``.

    The caller's own rhythm is the clock: ``update`` looks at ``Progress.seconds`` and draws when it is time. What is
    done within a second is not shown at all.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._line = ProgressLine(out)
        self._pace = Pace()

    def update(self, progress: Progress) -> None:
        """Show progress, unless that was done a moment ago."""
        self._pace.observe(progress.seconds, progress.slots_done)
        if progress.seconds < WORTH_SHOWING_SECONDS or not progress.slots_total:
            return
        self._line.update(progress.seconds, lambda: self._rendered(progress))

    def finish(self, progress: Progress) -> None:
        """Show where it ended, where the way there was shown or took its time, and leave the line."""
        is_worth_showing = progress.seconds >= WORTH_SHOWING_SECONDS and progress.slots_total
        if self._line.is_drawn or is_worth_showing:
            self._line.finish(self._rendered(progress))

    def leave(self) -> None:
        """Leave the line as it is, if there is one: what is written next begins another."""
        self._line.leave()

    def _rendered(self, progress: Progress) -> str:
        return render(progress, self._pace.eta_seconds(progress.slots_remaining))


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
