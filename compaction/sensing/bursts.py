"""Deletions that come many at a time, as when a window closes: found by when the log's tombstones were written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stateflow.compaction.model.workload import Bursts

_SLOT_MS = 1000
_RECORDS_MIN = 1000
_LIVE_SHARE_MIN = 0.05
"""Of the live keys: smaller bursts do not make a log's size jump."""
_ALIKE = 1 / 3
_HOT = 3.0
"""Times the mean of all seconds: what makes a second part of a burst."""
_IN_BURSTS_MIN = 0.8
"""Share of the tombstones that lie in bursts; with fewer, keys are deleted as they are updated."""


@dataclass(frozen=True, slots=True)
class LogSpan:
    """The log that the tombstones were found in."""

    first_ms: int
    last_ms: int
    """Timestamps of the oldest and the newest record."""
    retention_ms: int
    """Tombstones younger than this are all still there."""
    live_keys: float


def find_bursts(
    times_ms: Sequence[int], span: LogSpan, *, tombstone_bytes: float, scale: float = 1.0
) -> Bursts | None:
    """The bursts that the tombstones of a log show; None when there are none worth telling.

    Each tombstone found stands for ``scale`` of them. A single burst is taken to come once in the time that the log
    looks back on, or in the retention, if that is longer.
    """
    recent = [at for at in times_ms if at >= span.last_ms - span.retention_ms]
    runs = _runs(recent, min(span.last_ms - span.first_ms, span.retention_ms))
    largest = max((count for _, count in runs), default=0) * scale
    if largest < max(_RECORDS_MIN, _LIVE_SHARE_MIN * span.live_keys):
        return None
    bursts = [(at, count) for at, count in runs if count * scale >= _ALIKE * largest]
    if sum(count for _, count in bursts) < _IN_BURSTS_MIN * len(recent):
        return None
    if len(bursts) > 1:
        interval = (bursts[-1][0] - bursts[0][0]) / (len(bursts) - 1) / 1000
    else:
        interval = max(span.last_ms - span.first_ms, span.retention_ms, _SLOT_MS) / 1000
    gone_by = min(1.0, (span.last_ms - bursts[-1][0]) / 1000 / interval)
    return Bursts(
        records=largest,
        interval_seconds=interval,
        # Between bursts the keys grow by as many as the next one deletes.
        keys_max=max(largest, span.live_keys + largest * (1 - gone_by)),
        tombstone_bytes=tombstone_bytes,
    )


def _runs(times_ms: Sequence[int], span_ms: int) -> list[tuple[int, int]]:
    """Seconds with far more tombstones than others, neighbours together: when the run began, how many it has."""
    usual = len(times_ms) * _SLOT_MS / max(span_ms, _SLOT_MS)
    runs: list[tuple[int, int]] = []
    end = None
    for slot, count in sorted(Counter(at // _SLOT_MS for at in times_ms).items()):
        if count < _HOT * usual:
            continue
        if end is not None and slot == end + 1:
            runs[-1] = runs[-1][0], runs[-1][1] + count
        else:
            runs.append((slot * _SLOT_MS, count))
        end = slot
    return runs
