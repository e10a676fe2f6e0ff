"""What the log of ``stateflow run --workers N --verbose`` tells about its workers."""

from __future__ import annotations

import re

_PROCESS = re.compile(r"Worker (w\d+) is process (\d+)\.")
_TASK = re.compile(r"^(w\d+): task (\S+) is (running|closed)$", re.MULTILINE)


def worker_pids(log: str) -> dict[str, int]:
    """Worker → its newest process id."""
    return {name: int(pid) for name, pid in _PROCESS.findall(log)}


def running_tasks(log: str, worker: str | None = None) -> list[str]:
    """Tasks that run at the end of the log, of one worker or of all, sorted."""
    owners: dict[str, str] = {}
    for name, task, state in _TASK.findall(log):
        if state == "running":
            owners[task] = name
        elif owners.get(task) == name:
            del owners[task]
    return sorted(task for task, name in owners.items() if worker in (None, name))


def all_work(log: str, workers: int) -> bool:
    """True when so many workers have tasks."""
    return len({name for name, _, _ in _TASK.findall(log) if running_tasks(log, name)}) == workers
