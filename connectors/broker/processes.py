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
