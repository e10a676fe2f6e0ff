"""Points in time as the application gives them: whole milliseconds since 1970 UTC, or a datetime with a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

TIME_MS_MAX = 1 << 62
"""The latest event time. Kafka's timestamps are 64-bit; sizes of windows and graces are added to them."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
NO_TIME_MS = -1
"""Kafka's word for a record without a timestamp."""


def time_ms(when: Any, what: str = "event time") -> int:
    """A time in ms. Raises ``ValueError`` or ``TypeError`` for one that is none, before 1970 or beyond 2**62 ms.

    A datetime is in a millisecond, and that is its time. A float is taken where it is whole, since JSON does not tell
    5.0 from 5; cutting off a fraction would hide that the unit is another one.
    """
    if type(when) is int and 0 <= when <= TIME_MS_MAX:
        return when
    found = whole_time_ms(when, what)
    if found < 0:
        raise ValueError(f"{what} {when} ms is before 1970")
    return found


def emitted_ms(when: Any) -> int:
    """The event time of what an operator emits: as ``time_ms``, or −1 for a record that has none."""
    return NO_TIME_MS if type(when) is int and when == NO_TIME_MS else time_ms(when, "timestamp_ms")


def whole_time_ms(when: Any, what: str) -> int:
    """A time in ms that may be before 1970; raises as ``time_ms``."""
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise ValueError(f"{what} {when!r} has no time zone")
        return (when - _EPOCH) // _MILLISECOND  # and not by way of a float, which may be the next one
    if isinstance(when, float) and when.is_integer():
        found = int(when)
    elif isinstance(when, bool) or not hasattr(when, "__index__"):
        raise TypeError(
            f"{what} {when!r:.80} is a {type(when).__name__}: give whole milliseconds since 1970 UTC, such as"
            " round(seconds * 1000), or a datetime with a time zone"
        )
    else:
        found = int(when.__index__())
    if found > TIME_MS_MAX:
        raise ValueError(f"{what} {when!r:.80} is beyond 2**62 ms: give milliseconds since 1970 UTC")
    return found
