"""How long to wait before the next attempt at something that has failed."""

from __future__ import annotations

_DOUBLINGS_MAX = 16
"""Enough for any bounds that make sense, and no float overflows."""


def pause_seconds(failures: int, first_seconds: float, longest_seconds: float) -> float:
    """The pause after so many failures in a row, at least one: doubles from the first on, up to the longest."""
    assert failures >= 1, "nothing has failed"
    return min(longest_seconds, first_seconds * 2.0 ** min(failures - 1, _DOUBLINGS_MAX))
