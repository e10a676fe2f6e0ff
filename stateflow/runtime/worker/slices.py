"""How much a worker processes at a time: turns of its loop bounded in seconds, not in records.

Between two turns it serves the group, commits what is due and looks whether it is to stop. So a step that takes 20 ms
or 200 ms per record delays a commit by one turn, not by all that was polled.

A step that waits for an outside service takes as long for one record as for all that it asks about at a time, however
long that is. Such a task is never given fewer: cut to single records it would ask one question after the other.
"""

from __future__ import annotations

from stateflow.runtime.settings import WorkerSettings

_TURN_SECONDS_MAX = 0.1
_TURN_SECONDS_MIN = 0.01
_TURNS_PER_COMMIT = 4


def turn_seconds(settings: WorkerSettings) -> float:
    """How long one turn of a worker may process: a small part of the commit interval."""
    share_seconds = settings.commit_interval_seconds / _TURNS_PER_COMMIT
    return max(_TURN_SECONDS_MIN, min(_TURN_SECONDS_MAX, share_seconds))


class SliceSize:
    """How many records of one input fit into a time, learnt from those it has processed.

    Doubles as long as slices are full, so that a few fast records do not promise much; what the clock said of the last
    slice bounds the next one. Where the application's code is called, which may suddenly take long, the limit is lower.
    """

    def __init__(
        self, settings: WorkerSettings, records_min: int = 1, *, calls_application: bool = True
    ) -> None:
        most = settings.slice_records_max if calls_application else settings.slice_records_own_max
        self._records_max = max(most, records_min)
        self.records_min = records_min
        self._records = max(records_min, min(settings.slice_records_first, self._records_max))
        self.seconds_per_record = 0.0
        """Of the last slice."""

    def fitting(self, seconds: float) -> int:
        """Records of the next slice, at least ``records_min``."""
        if self._records * self.seconds_per_record <= seconds:
            return self._records
        return max(self.records_min, int(seconds / self.seconds_per_record + 0.001))

    def took(self, records: int, seconds: float) -> None:
        """A slice of so many records has taken so long."""
        self.seconds_per_record = seconds / records
        if seconds > _TURN_SECONDS_MAX:
            self._records = max(self.records_min, int(_TURN_SECONDS_MAX / self.seconds_per_record))
        elif records >= self._records:
            self._records = min(2 * self._records, self._records_max)
