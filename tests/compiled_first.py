"""One process imports the tests before the others do: what it compiles they only read.

In a fresh checkout nothing is compiled, and every process of a run would compile all of it, the tests and what they
import: ten CPU seconds each.
"""

from __future__ import annotations

import fcntl
import os
import tempfile


class CompiledFirst:
    """Held until the first process is done; the kernel lets go of it if this one ends."""

    def __init__(self) -> None:
        handle, self.path = tempfile.mkstemp(prefix="stateflow-tests-")
        fcntl.flock(handle, fcntl.LOCK_EX)
        self._handle: int | None = handle

    def done(self) -> None:
        """Let the others begin. Harmless when they have."""
        if self._handle is not None:
            os.unlink(self.path)
            os.close(self._handle)
            self._handle = None


def wait_for_compiled(path: str) -> None:
    """Wait until the first process is done."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # it is
        return
    fcntl.flock(handle, fcntl.LOCK_SH)
    os.close(handle)
