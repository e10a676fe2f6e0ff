"""What this process spends and waits for: whether a timing taken here says anything about a machine that is free."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True)
class OwnCpu:
    """CPU time of this process so far, and time that its threads were ready but had no core."""

    used_seconds: float
    waited_seconds: float

    def __add__(self, other: OwnCpu) -> OwnCpu:
        return OwnCpu(self.used_seconds + other.used_seconds, self.waited_seconds + other.waited_seconds)

    def __sub__(self, earlier: OwnCpu) -> OwnCpu:
        return OwnCpu(
            self.used_seconds - earlier.used_seconds,
            # A thread that ended meanwhile took its waiting with it.
            max(0.0, self.waited_seconds - earlier.waited_seconds),
        )


def own_cpu() -> OwnCpu:
    """Now. Waiting is 0 where the kernel does not tell it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return OwnCpu(usage.ru_utime + usage.ru_stime, sum(map(_waited_seconds, _threads())))


def _threads() -> list[Path]:
    return list(_TASKS.iterdir()) if _TASKS.exists() else []


def _waited_seconds(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[1]) / 1e9
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # a thread that ended meanwhile, or a kernel that keeps no such statistics
