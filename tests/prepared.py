"""What the tests need is made ready while they are collected; none begins before.

`tools/side_by_side.py` fetches jars and makes archives of Java's classes, and says on a pipe when it has. Without it,
under pytest alone, each test gets for itself what it needs.
"""

from __future__ import annotations

import os

import pytest

VARIABLE = "STATEFLOW_TESTS_START_AFTER"


class Preparation:
    """The end of the pipe, in the process that deals the tests out, or runs them alone."""

    def __init__(self) -> None:
        given = os.environ.pop(VARIABLE, None)  # what this process starts has no such pipe
        self._told = None if given is None else int(given)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for, or no more."""
        return self._told is None

    def wait(self) -> None:
        """Wait until everything is ready; ends the run if it can't be."""
        if self._told is None:
            return
        ready = os.read(self._told, 1)
        os.close(self._told)
        self._told = None
        if not ready:
            pytest.exit("what the tests need could not be made ready, for the reason above", returncode=1)
