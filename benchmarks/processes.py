"""What a process takes, as Linux tells it: memory, threads, descriptors, CPU."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Taken:
    """One look at a process."""

    rss_mb: float
    threads: int
    descriptors: int
    cpu_seconds: float


def taken(pid: int) -> Taken:
    """What it takes now; ``FileNotFoundError`` when it has ended."""
    place = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    times = (place / "stat").read_text().rpartition(")")[2].split()
    return Taken(
        rss_mb=round(int(status["VmRSS"].split()[0]) / 1024, 1),
        threads=int(status["Threads"]),
        descriptors=len(list((place / "fd").iterdir())),
        cpu_seconds=(int(times[11]) + int(times[12])) / _TICKS,
    )
