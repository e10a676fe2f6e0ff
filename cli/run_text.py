"""What a worker says on a terminal of its tasks and restores."""

from __future__ import annotations

import threading

import click

from stateflow.checkpoint.progress import Progress, ProgressBar


class WorkerLines:
    """A ``WorkerObserver``: bars on a terminal, plain lines anywhere else (stderr)."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._bars: dict[str, ProgressBar] = {}
        self._lock = threading.Lock()

    def on_restore(self, task: str, progress: Progress) -> None:
        """Draw how far a restore is; a restore that had nothing to do is not mentioned."""
        if not progress.slots_total:
            return
        with self._lock:
            bar = self._bars.setdefault(task, ProgressBar())
            if progress.slots_remaining:
                bar.update(progress)
            else:
                bar.finish(progress)
                del self._bars[task]

    def on_restore_stopped(self, task: str) -> None:
        """Leave its bar as it is: another restore of the task has a bar of its own."""
        with self._lock:
            bar = self._bars.pop(task, None)
            if bar is not None:
                bar.leave()

    def on_running(self, task: str) -> None:
        """Say that a task runs."""
        self._say(f"task {task} is running")

    def on_commit(self, task: str, records_total: int, sent_total: int) -> None:
        """Nothing: there are many a second."""

    def on_released(self, task: str) -> None:
        """Say that a task was let go."""
        self._say(f"task {task} is closed")

    def _say(self, what: str) -> None:
        with self._lock:
            click.echo(f"{self._worker}: {what}", err=True)
