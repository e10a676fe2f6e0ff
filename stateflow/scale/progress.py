"""How far a repartition or a recovery is.

It is told by the jobs as they end, and for unread records by the offsets committed meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self

from stateflow.checkpoint.progress import WORTH_SHOWING_SECONDS, Pace
from stateflow.log.base import Cluster
from stateflow.scale.unread import UnreadMove

POLL_SECONDS = 0.5

Step = Literal["moving", "auditing", "reading"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one step is, counted from the beginning of this attempt. An offset slot of a changelog is half done when
    it is read, and done when the slice that it is in is written or summed up; one of a recovery is done when its sorted
    file is written.
    """

    step: Step
    slots_done: int
    slots_total: int
    records_read_total: int
    records_written_total: int
    seconds: float
    eta_seconds: float | None = None
    """Time left, where there is a basis to tell it by."""

    @property
    def rate(self) -> float:
        """Records read per second so far."""
        return self.records_read_total / self.seconds if self.seconds > 0 else 0.0


class Done(Protocol):
    """What a job that ended says of itself."""

    @property
    def half_slots(self) -> int:
        """Offset slots that it read or wrote, two halves each where it did both."""
        ...

    @property
    def records_read_total(self) -> int:
        """Records read from the log."""
        ...

    @property
    def records_written_total(self) -> int:
        """Records written to the log."""
        ...


class ProgressWatch:
    """Counts what jobs say that they did, in a ``with`` block around a step, and reports it from a thread of its own.

    Nothing is reported of a step without work, or one that is done within a second.
    """

    def __init__(self, cluster: Cluster, step: Step, report: Callable[[Progress], None] | None) -> None:
        self._cluster = cluster
        self._step: Step = step
        self._report = report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="repartition-progress", daemon=True)
        self._started_at = time.monotonic()
        self._lock = threading.Lock()
        self._half_slots_total = 0
        self._half_slots = 0
        self._read = 0
        self._written = 0
        self._unread: Sequence[UnreadMove] = ()
        self._unread_before = 0
        self._pace = Pace()

    def expect(self, half_slots: int, unread: Sequence[UnreadMove] = ()) -> None:
        """Say what there is to do. How far moves of unread records are is read from their committed offsets."""
        with self._lock:
            self._unread, self._unread_before = unread, self._unread_committed(unread)
            left = sum(job.offsets.slots for job in unread) - self._unread_before
            self._half_slots_total = half_slots + 2 * left

    def note(self, done: Done) -> None:
        """Count a job that ended; may be called by any thread."""
        with self._lock:
            self._half_slots += done.half_slots
            self._read += done.records_read_total
            self._written += done.records_written_total

    def __enter__(self) -> Self:
        """Begin to report; nothing happens without someone to report to."""
        if self._report is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; a step that succeeded is reported once more, complete."""
        self._stopped.set()
        if self._report is not None:
            self._thread.join()
            if error is None:
                self._tell()

    def _run(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            self._tell()

    def _tell(self) -> None:
        assert self._report is not None, "started only with someone to report to"
        progress = self._progress()
        if progress.slots_total and progress.seconds >= WORTH_SHOWING_SECONDS:
            self._report(progress)

    def _progress(self) -> Progress:
        with self._lock:
            unread = self._unread_committed(self._unread) - self._unread_before
            total = self._half_slots_total // 2
            # A job that was done twice has counted twice.
            done = min(total, self._half_slots // 2 + unread)
            read, written = self._read, self._written
        seconds = time.monotonic() - self._started_at
        self._pace.observe(seconds, done)
        return Progress(self._step, done, total, read, written, seconds, self._pace.eta_seconds(total - done))

    def _unread_committed(self, unread: Sequence[UnreadMove]) -> int:
        if not unread or self._report is None:
            return 0
        # Unstable on purpose: an open transaction of a killed attempt must not hold up a progress bar.
        found = self._cluster.committed(unread[0].group, [job.source for job in unread], stable=False)
        return sum(
            found[job.source].offset_next - job.offsets.offset_first for job in unread if job.source in found
        )
