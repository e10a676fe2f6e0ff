"""Which records of two streams belong together by their times."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from stateflow.duration import declared_ms
from stateflow.errors import GraphError

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Within:
    """A record is joined with those of the other stream from ``before`` earlier up to ``after`` later, both included.

    ``Within(timedelta(minutes=5))`` reaches as far in both directions. ``grace`` is how late a record may be: one that
    comes when event time is further ahead of it is late, and left out. Raises ``GraphError`` for negative spans or
    fractions of a millisecond.
    """

    before: timedelta
    after: timedelta | None = None
    grace: timedelta = ZERO

    def __post_init__(self) -> None:
        if min(self.before_ms, self.after_ms, self.grace_ms) < 0:
            raise GraphError(
                f"A join within {self.before} before and {self.after} after with a grace of {self.grace} cannot be.",
                action="Give spans that are not negative.",
            )

    @property
    def before_ms(self) -> int:
        """How much earlier the other record may be, ms."""
        return declared_ms("interval of a join", self.before)

    @property
    def after_ms(self) -> int:
        """How much later the other record may be, ms."""
        return declared_ms("interval of a join", self.before if self.after is None else self.after)

    @property
    def grace_ms(self) -> int:
        """How late a record may be, ms."""
        return declared_ms("grace of a join", self.grace)

    @property
    def left_kept_ms(self) -> int:
        """How far event time must have come past a record of the left stream that nothing joins it any more.

        What is in time is at most ``grace`` older than event time, and a partner at most ``after`` newer than it.
        """
        return self.after_ms + self.grace_ms + 1

    @property
    def right_kept_ms(self) -> int:
        """The same for a record of the right stream."""
        return self.before_ms + self.grace_ms + 1

    @property
    def delay_ms(self) -> int:
        """How far results may lie behind event time."""
        return max(self.left_kept_ms, self.right_kept_ms)
