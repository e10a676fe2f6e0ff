"""What stands in a changelog beside state: reserved keys and headers. ``docs/formats.md`` has the bytes."""

from __future__ import annotations

RESERVED_KEY_PREFIX = b"\xff\xffsf\x00"
"""Keys that begin so are the log's own bookkeeping and never state; restore and repartition pass them over."""

TOUCH_KEY = RESERVED_KEY_PREFIX + b"touch"
"""A record whose only purpose is to make an idle partition roll, so that the cleaner can reach it."""

WATERMARK_HEADER = "sf-wm"
"""Header of a watermark record on a repartition topic (key and value None)."""

MARK_HEADER = "sf-mark"
"""Header of a re-keyed record whose mark is not its own time: the mark, ms, int64 big-endian."""

ORIGIN_HEADER = "sf-origin"
"""Header of a re-keyed record that a later stage may send to a dead-letter topic: ``operators/steps/origin.py``."""

BARRIER_HEADER = "sf-cut"
"""Header of everything that a task sends to a repartition topic behind its barrier point, with the barrier's id: see
``changelog/barrier_id.py``. Topics keep the word that the first version had for it."""


def is_reserved(key: bytes | None) -> bool:
    """True for a record that is bookkeeping, not state. A record without a key is never state."""
    return key is None or key.startswith(RESERVED_KEY_PREFIX)
