"""Values that no codec makes smaller, so that sizes measured on a broker are those of the records written."""

from __future__ import annotations

import random

from stateflow.compaction.model.streams import Stream, Update

_POOL_BYTES = 4 << 20
"""Far more than a batch or the window of any codec holds, so that neither sees the same bytes twice."""


class Values:
    """Random bytes for the updates of a stream, cut from a pool one after another; not thread-safe."""

    def __init__(self, stream: Stream) -> None:
        self._pool = random.Random(stream.seed).randbytes(_POOL_BYTES)  # noqa: S311 - no secret
        self._at = 0

    def of(self, update: Update) -> bytes | None:
        """The update's value, as long as it says; None for a tombstone."""
        if update.value_bytes is None:
            return None
        if self._at + update.value_bytes > _POOL_BYTES:
            self._at = 0
        start, self._at = self._at, self._at + update.value_bytes
        return self._pool[start : self._at]
