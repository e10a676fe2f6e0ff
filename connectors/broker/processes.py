"""What this machine's process table says: whether a process id still means the program that it meant."""

from __future__ import annotations

import subprocess
from pathlib import Path


def command_line(pid: int) -> str | None:
    """The command that process `pid` runs, arguments parted by spaces; None when there is no such process.

    A process that has ended and was not yet reaped counts as none.
    """
    table = Path("/proc")
    if (table / "self" / "cmdline").exists():
        try:
            text = (table / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            return None
        return text.decode(errors="replace").strip() or None
    found = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return found.stdout.strip() or None


def children(pid: int) -> dict[int, str]:
    """The commands of the processes that process `pid` has started and that run, by their ids."""
    table = Path("/proc")
    if (table / "self" / "stat").exists():
        own = [int(place.name) for place in table.iterdir() if place.name.isdigit()]
        commands = {child: command_line(child) for child in own if _parent(table / str(child)) == pid}
        return {child: command for child, command in commands.items() if command is not None}
    found = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,command="],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    rows = [line.split(None, 2) for line in found.stdout.splitlines()]
    return {int(row[0]): row[2] for row in rows if len(row) == 3 and int(row[1]) == pid}


def _parent(place: Path) -> int | None:
    try:
        return int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None
