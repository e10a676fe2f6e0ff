"""CPU seconds of this process and of all that it started, the JVM, Python workers and an embedded broker among them."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds() -> float:
    """So far; those that have ended count with who waited for them. Linux only."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(place.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    return sum(ticks[pid] for pid in parents if _is_ours(pid, parents)) / _TICKS


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    own = os.getpid()
    while pid > 1 and pid != own:
        pid = parents.get(pid, 0)
    return pid == own
