"""Who is told what happens to the tasks of a worker: one observer, or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stateflow.checkpoint.progress import Progress


class WorkerObserver(Protocol):
    """Told what happens to tasks; of restores from other threads than of the rest."""

    def on_restore(self, task: str, progress: Progress) -> None:
        """A restore has advanced."""
        ...

    def on_restore_stopped(self, task: str) -> None:
        """A restore has ended before it was whole: it was cancelled, or has failed."""
        ...

    def on_running(self, task: str) -> None:
        """A task is restored and reads its input."""
        ...

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None:
        """A task has committed: the records that it has processed and sent since it was opened.

        Those sent are outputs and re-keyed records, not the changelogs'.
        """
        ...

    def on_released(self, task: str) -> None:
        """A task was committed, or abandoned, and closed."""
        ...


class Observers:
    """Implements ``WorkerObserver``: tells each of them, in order."""

    def __init__(self, observers: Sequence[WorkerObserver]) -> None:
        self._observers = tuple(observers)

    def on_restore(self, task: str, progress: Progress) -> None:
        """A restore has advanced."""
        for observer in self._observers:
            observer.on_restore(task, progress)

    def on_restore_stopped(self, task: str) -> None:
        """A restore has ended before it was whole."""
        for observer in self._observers:
            observer.on_restore_stopped(task)

    def on_running(self, task: str) -> None:
        """A task is restored and reads its input."""
        for observer in self._observers:
            observer.on_running(task)

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None:
        """A task has committed."""
        for observer in self._observers:
            observer.on_commit(task, records_total, sent_total)

    def on_released(self, task: str) -> None:
        """A task was committed, or abandoned, and closed."""
        for observer in self._observers:
            observer.on_released(task)
