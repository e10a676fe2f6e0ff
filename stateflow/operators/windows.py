"""Windows in event time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from stateflow.changelog.eventual import Eventual
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.error_policy import check_late_policy

Emit = Literal["on_update", "on_close"]
_EMITS: tuple[Emit, ...] = get_args(Emit)

ZERO = timedelta(0)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of equal size, side by side, aligned to 1970 UTC: each record is in exactly one.

    ``grace`` is how long after its end a window still takes records; what comes later is late.
    Raises ``GraphError`` for a size below 1 ms, a negative grace, or fractions of a millisecond.
    """

    size: timedelta
    grace: timedelta = ZERO

    def __post_init__(self) -> None:
        if self.size_ms < 1 or self.grace_ms < 0:
            raise GraphError(
                f"A window of {self.size} with a grace of {self.grace} cannot be.",
                action="Give a size of 1 ms or more and a grace that is not negative.",
            )

    @property
    def size_ms(self) -> int:
        """Size, ms."""
        return declared_ms("size of a window", self.size)

    @property
    def grace_ms(self) -> int:
        """Grace, ms."""
        return declared_ms("grace of a window", self.grace)


def check_window(window: object, emit: object, late: object, changelog: object) -> None:
    """Raise ``GraphError`` for what ``.window(…)`` does not take: a misspelt word would swallow every result."""
    if not isinstance(window, Tumbling):
        raise GraphError(f"{window!r} is no window.", action="Give sf.Tumbling(size, grace=…).")
    if emit not in _EMITS:
        raise GraphError(f"A window was given emit={emit!r}.", action="Give emit='on_update' or 'on_close'.")
    check_late_policy("A window", late)
    if changelog is not None and not isinstance(changelog, Eventual):
        raise GraphError(
            f"A window was given changelog={changelog!r}.",
            action="Give sf.Eventual(intensity=…), or leave it out to have every change logged.",
        )
