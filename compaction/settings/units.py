"""Settings and quantities in units for people: ``segment.ms=14000 (14 s)``, ``2.5 min``, ``9.4 MiB``."""

from __future__ import annotations

import math

NEVER_FROM_MS = 2**62
"""A time as long as this is what Kafka calls never."""
_TIMES = ((365 * 86_400.0, "years"), (86_400.0, "d"), (3600.0, "h"), (60.0, "min"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_MINUTES_FROM_SECONDS = 120
"""90 s is read more easily than 1.5 min."""


def duration(seconds: float) -> str:
    """A time: ``250 ms``, ``14 s``, ``2.5 min``, ``7 d``; ``unbounded`` for infinity."""
    if not math.isfinite(seconds):
        return "unbounded"
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    for size, unit in _TIMES:
        if seconds >= max(size, _MINUTES_FROM_SECONDS):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def size(size_bytes: float) -> str:
    """An amount of bytes: ``120 B``, ``9.4 MiB``; ``unbounded`` for infinity."""
    if not math.isfinite(size_bytes):
        return "unbounded"
    for one, unit in _SIZES:
        if size_bytes >= one:
            value = size_bytes / one
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def cores(share: float) -> str:
    """CPU of one core: ``1.2 %``; less than that is noise is ``under 0.01 %``."""
    percent = 100 * share
    if 0 < percent < 0.01:
        return "under 0.01 %"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def with_unit(setting: str, value: str) -> str:
    """A setting's value, and what that is in a unit for people: ``604800000 (7 d)``."""
    if not value.isdigit():
        return value
    number = int(value)
    if setting.endswith(".ms") and number >= NEVER_FROM_MS:
        return f"{value} (never)"
    if setting.endswith(".ms") and number >= 1000:
        return f"{value} ({duration(number / 1000)})"
    if setting.endswith(".bytes") and number >= _SIZES[-1][0]:
        return f"{value} ({size(number)})"
    return value
