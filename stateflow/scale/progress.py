"""How far a move is: read from its committed offsets, so it is true whichever machine does the work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType

from stateflow.checkpoint.progress import WORTH_SHOWING_SECONDS, Pace
from stateflow.log.base import Cluster
from stateflow.scale.repartition import MoveJob

POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """Offset slots moved since this attempt began, and all that it found to do."""

    slots_done: int
    slots_total: int
    seconds: float
    eta_seconds: float | None = None
    """Time left, where there is a basis to tell it by."""

    @property
    def rate(self) -> float:
        """Slots per second so far."""
        return self.slots_done / self.seconds if self.seconds > 0 else 0.0


class ProgressWatch:
    """Polls the committed offsets of a move from the side, in a ``with`` block around it.

    Nothing is reported of a move without work, or one that is done within a second.
    """

    def __init__(
        self, cluster: Cluster, jobs: Sequence[MoveJob], report: Callable[[Progress], None] | None
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._report = report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="repartition-progress", daemon=True)
        self._started_at = time.monotonic()
        self._slots_before = 0
        self._pace = Pace()

    def __enter__(self) -> ProgressWatch:
        """Begin to poll; nothing happens without someone to report to."""
        if self._report is not None and self._jobs:
            self._slots_before = self._slots_committed()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; a move that succeeded is reported once more, complete."""
        self._stopped.set()
        if self._report is not None and self._jobs:
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
        total = sum(job.offsets.slots for job in self._jobs) - self._slots_before
        done = self._slots_committed() - self._slots_before
        seconds = time.monotonic() - self._started_at
        self._pace.observe(seconds, done)
        return Progress(done, total, seconds, self._pace.eta_seconds(total - done))

    def _slots_committed(self) -> int:
        # Unstable on purpose: an open transaction of a killed attempt must not hold up a progress bar.
        found = self._cluster.committed(self._jobs[0].group, [job.source for job in self._jobs], stable=False)
        return sum(
            found[job.source].offset_next - job.offsets.offset_first
            for job in self._jobs
            if job.source in found
        )
