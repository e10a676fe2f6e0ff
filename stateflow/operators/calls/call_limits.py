"""What bounds the calls of a step to an outside service; apart from the calls, which bring in asyncio."""

from __future__ import annotations

from dataclasses import dataclass

from stateflow.backoff import pause_seconds

PAUSE_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What bounds the calls of one step."""

    concurrency: int
    timeout_seconds: float
    """Of one attempt."""
    retries: int
    pause_seconds: float
    """Before the first retry; doubles from there, up to ``PAUSE_SECONDS_MAX``."""

    @property
    def seconds_max(self) -> float:
        """The longest that one call may take with all its attempts and the pauses between them."""
        pauses = (self.pause_after(attempts) for attempts in range(1, self.retries + 1))
        return self.timeout_seconds * (self.retries + 1) + sum(pauses)

    def pause_after(self, attempts: int) -> float:
        """How long to wait before the next attempt, after so many."""
        return pause_seconds(attempts, self.pause_seconds, PAUSE_SECONDS_MAX)
