"""The error for input that was removed before a task has processed it: what to do depends on what the task keeps."""

from __future__ import annotations

from stateflow.errors import OffsetOutOfRange
from stateflow.record import TopicPartition
from stateflow.runtime.task.wiring import TaskWiring

_ACCEPT_KEEPING_STATE = (
    "to accept the gap and keep the state, `stateflow reset APP --to-earliest`: it moves the positions whose"
    " records are gone, and no others."
)
_ACCEPT_WITHOUT_STATE = "the state rests on those records; to begin anew without it, `stateflow reset APP`."


def removed_input(
    wiring: TaskWiring, source: TopicPartition, offset: int, low: int, high: int
) -> OffsetOutOfRange:
    """The error for an input that goes on at ``offset`` and whose log begins at ``low`` by now."""
    rests_on_it = wiring.is_rekeyed or wiring.changelogs
    return OffsetOutOfRange(
        f"{source} no longer has the records from offset {offset}; it now begins at"
        f" {low}: retention removed input that was never processed.",
        action=f"lengthen the topic's retention; {_ACCEPT_WITHOUT_STATE if rests_on_it else _ACCEPT_KEEPING_STATE}",
        topic=source.topic,
        partition=source.partition,
        offset=offset,
        low=low,
        high=high,
    )
