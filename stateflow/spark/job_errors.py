"""How a job that was run as a program tells why it has ended before its time."""

from __future__ import annotations

import sys

from stateflow.errors import StateflowError
from stateflow.interrupts import stopped_by_user


def report(error: StateflowError | KeyboardInterrupt) -> int:
    """Print one line of it; returns the exit code."""
    why = error if isinstance(error, StateflowError) else stopped_by_user()
    print(f"error: {why}", file=sys.stderr)
    return why.exit_code
