"""How far a restore is, in offset slots: the only measure that is known beforehand and reaches its end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TextIO

_BAR_CELLS = 24
_LINE_INTERVAL_SECONDS = 5.0
_DRAW_INTERVAL_SECONDS = 0.1


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
    def slots_per_second(self) -> float:
        """Mean rate so far; 0 before anything was done."""
        return self.slots_done / self.seconds if self.seconds > 0 else 0.0

    @property
    def records_per_second(self) -> float:
        """Records read per second so far; 0 before anything was read."""
        return self.records_total / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """Time that the rest takes at the mean rate; None before there is a rate."""
        if not self.slots_remaining:
            return 0.0
        return self.slots_remaining / self.slots_per_second if self.slots_per_second else None


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


def render(progress: Progress) -> str:
    """One line: bar, percent, slots, rate, time left."""
    filled = int(progress.fraction * _BAR_CELLS)
    bar = "█" * filled + "·" * (_BAR_CELLS - filled)
    eta = "–" if progress.eta_seconds is None else _duration(progress.eta_seconds)
    return (
        f"{progress.name} [{bar}] {progress.fraction:4.0%}  {progress.slots_done:,}/{progress.slots_total:,}"
        " offsets"
        f"  {progress.records_per_second:,.0f} rec/s  {progress.bytes_total / 1e6:,.1f} MB  ETA {eta}"
    )


class ProgressBar:
    """Draws progress on one line of a terminal; elsewhere writes a plain line every few seconds.

    The caller's own rhythm is the clock: ``update`` looks at ``Progress.seconds`` and draws when it is time.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_terminal = self._out.isatty()
        self._drawn_seconds: float | None = None
        self._width = 0

    def update(self, progress: Progress) -> None:
        """Show progress, unless that was done a moment ago."""
        interval = _DRAW_INTERVAL_SECONDS if self._is_terminal else _LINE_INTERVAL_SECONDS
        if self._drawn_seconds is None or progress.seconds - self._drawn_seconds >= interval:
            self._drawn_seconds = progress.seconds
            self._draw(progress)

    def finish(self, progress: Progress) -> None:
        """Show where it ended, and leave the line."""
        self._draw(progress)
        if self._is_terminal:
            self._out.write("\n")
            self._out.flush()

    def _draw(self, progress: Progress) -> None:
        line = render(progress)
        if self._is_terminal:
            self._out.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._out.write(line + "\n")
        self._out.flush()


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
