"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

_LOOK_SECONDS = 0.1


def await_true(condition: Callable[[], bool], seconds_max: float) -> None:
    """Return once the condition holds. Raises ``TimeoutError``."""
    until = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds_max:g} s")
        time.sleep(_LOOK_SECONDS)
