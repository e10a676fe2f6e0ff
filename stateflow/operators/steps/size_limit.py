"""Records that are larger than their topic takes, found before they are sent.

What a broker refuses ends the whole transaction, so a step that lets records go must not send it one. A record is held
against the topic's ``max.message.bytes`` as it is before compression: what becomes of it then does not depend on how
well it, or its neighbours, can be compressed. A step that fails anyway leaves it to the broker, which goes by what it
is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from stateflow.errors import ProcessingError
from stateflow.operators.steps.context import StageContext
from stateflow.operators.steps.guard import Guard
from stateflow.record import Headers, record_bytes


class SizeLimit:
    """What one step sends to one topic, held against what the topic takes."""

    def __init__(self, topic: str, context: StageContext, guard: Guard) -> None:
        self._topic = topic
        self._context = context
        self._guard = guard

    def too_large(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers: Sequence[Headers],
        offsets: Sequence[int],
    ) -> list[int]:
        """The rows that the topic does not take, which have followed the policy; none where that is to fail."""
        if not self._guard.lets_go or not offsets:
            return []
        bytes_max = self._context.record_bytes_max(self._topic)
        others = max(map(_without_content, headers)) if headers else record_bytes(None, None)
        if _longest(keys) + _longest(values) + others <= bytes_max:
            return []
        sizes = list(map(record_bytes, keys, values, headers or repeat(())))
        large = [row for row, size_bytes in enumerate(sizes) if size_bytes > bytes_max]
        for row in large:
            error = ProcessingError(
                f"The record of {sizes[row]} bytes is larger than the topic {self._topic!r} takes: {bytes_max}.",
                action="Make it smaller, or raise the topic's max.message.bytes.",
            )
            self._guard.failed(error, offsets[row])
        return large


def _longest(column: Sequence[bytes | None]) -> int:
    try:
        return max(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # there is a None among them
        return max(len(item or b"") for item in column)


def _without_content(headers: Headers) -> int:
    return record_bytes(None, None, headers)
