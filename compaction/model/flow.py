"""A partition's log over time, as a fluid: what a time so long shows of it, averaged over the phases it may begin in.

The closed form names the largest log over all phases of segments, looks and windows. An hour, or a minute, shows some
of them: where a segment takes a little less than a backoff, a phase stays for long. What a pass leaves, when the next
comes, and what it finds of windows that closed meanwhile follow from one another, so they are walked through here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from stateflow.compaction.model.looks import Looks

_PHASES = 32
_PERIODS_MAX = 200
"""Longer times show no more."""
_GOLDEN, _SILVER = 0.6180339887, 0.4142135624
"""Fractions whose multiples spread evenly, and independently of one another."""
_SETTLING_PERIODS = 2


class Shown(NamedTuple):
    """What a time so long shows of one partition, on average over the phases it may begin in."""

    size_max_bytes: float
    size_mean_bytes: float


@dataclass(frozen=True, slots=True)
class Windows:
    """Keys that are deleted together whenever a window closes."""

    seconds: float
    """From one burst to the next."""
    alive_bytes_per_second: float
    """What a second of an open window keeps alive."""
    tombstone_bytes: float
    """Of one burst."""
    retention_seconds: float


@dataclass(frozen=True, slots=True)
class Flow:
    """What comes into one partition, and when its cleaner takes some of it out."""

    looks: Looks
    lag_seconds: float
    """Age below which nothing is cleaned."""
    pass_seconds: float
    live_bytes: float
    """Of the cleaned part; what windows keep alive apart."""
    bytes_per_second: float
    due_seconds: Callable[[float], float]
    """Age at which what a pass left makes the next one due, by the bytes of the cleaned part."""
    windows: Windows | None = None
    others_seconds: float = 0.0
    """How long passes over other topics keep the thread from its next look."""

    def shown(self, seconds: float) -> Shown:
        """What a time so long shows, on average over all phases."""
        period = self.looks.period + self.others_seconds
        seconds = min(seconds, _PERIODS_MAX * period)
        each = [self._one(seconds, period, phase) for phase in range(_PHASES)]
        return Shown(*(math.fsum(column) / _PHASES for column in zip(*each, strict=True)))

    def _one(self, seconds: float, period: float, phase: int) -> Shown:
        looks = self.looks
        left = looks.left_min + looks.left_spread * (phase + 0.5) / _PHASES
        walk = _Walk(self, left, math.fmod(phase * _GOLDEN, 1.0))
        settling = _SETTLING_PERIODS * period
        if self.windows is not None:
            settling += self.windows.retention_seconds
        begin = settling + math.fmod(phase * _SILVER, 1.0) * period
        end, largest, total = begin + seconds, 0.0, 0.0
        while walk.now < end:
            first, low, last, high = walk.tooth()
            if last <= begin:
                continue
            slope = (high - low) / max(last - first, 1e-9)
            from_, until = max(first, begin), min(last, end)
            from_bytes, until_bytes = low + slope * (from_ - first), low + slope * (until - first)
            total += (from_bytes + until_bytes) / 2 * max(0.0, until - from_)
            if until > from_:
                largest = max(largest, until_bytes)
        return Shown(largest, total / seconds)


class _Walk:
    """One log, from pass to pass; times count from the first pass on."""

    def __init__(self, flow: Flow, left: float, window_phase: float) -> None:
        self._flow = flow
        self._left = left
        self._pass_at = 0.0
        self._cleaned_to = -left - flow.lag_seconds
        self._window_phase = window_phase
        self._slept = True
        self._kept: list[tuple[float, float]] = []
        """Horizons of bursts in the cleaned part, and how many bursts go then."""

    @property
    def now(self) -> float:
        """When the last pass ended."""
        return self._pass_at + self._flow.pass_seconds

    def tooth(self) -> tuple[float, float, float, float]:
        """The log until the end of the next pass: from when and how many bytes, until when and how many."""
        flow, first = self._flow, self.now
        clean = self._clean_bytes()
        low = clean + self._dirty_bytes(first)
        # Who is cleaned again in the same turn finds few others due again.
        others = flow.others_seconds if self._slept else 0.0
        waited, self._slept = flow.looks.until_next(self._left, flow.due_seconds(clean), others)
        self._pass_at += waited
        last, high = self.now, clean + self._dirty_bytes(self.now)
        self._left = math.fmod(self._left + waited, flow.looks.segment)
        self._clean(self._pass_at - flow.lag_seconds - self._left)
        return first, low, last, high

    def _clean(self, until: float) -> None:
        windows = self._flow.windows
        if windows is not None:
            found = self._closed(until) - self._closed(self._cleaned_to)
            horizon = self._pass_at + windows.retention_seconds
            self._kept = [one for one in self._kept if one[0] > self._pass_at]
            self._kept.append((horizon, found))
        self._cleaned_to = until

    def _clean_bytes(self) -> float:
        flow, windows = self._flow, self._flow.windows
        if windows is None:
            return flow.live_bytes
        open_seconds = math.fmod(self._cleaned_to / windows.seconds + self._window_phase, 1.0)
        open_seconds = (open_seconds + 1.0 if open_seconds < 0 else open_seconds) * windows.seconds
        tombstones = windows.tombstone_bytes * math.fsum(count for _, count in self._kept)
        return open_seconds * windows.alive_bytes_per_second + tombstones

    def _dirty_bytes(self, at: float) -> float:
        flow, windows = self._flow, self._flow.windows
        found = flow.bytes_per_second * (at - self._cleaned_to)
        if windows is not None:
            found += windows.tombstone_bytes * (self._closed(at) - self._closed(self._cleaned_to))
        return found

    def _closed(self, at: float) -> float:
        """Windows that closed until then."""
        assert self._flow.windows is not None
        return math.floor(at / self._flow.windows.seconds + self._window_phase)
