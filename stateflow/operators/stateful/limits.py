"""Until when results are held back, as it is declared: for a time, or until their window closes; and how many."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from stateflow.duration import declared_ms
from stateflow.errors import GraphError

WhenFull = Literal["emit", "fail"]
_WHEN_FULL: tuple[WhenFull, ...] = get_args(WhenFull)


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Until so long after the first change that was not told: ``TimeLimit(timedelta(minutes=5))``, in event time.

    ``max_records`` and ``max_bytes`` bound what is held in one task; where there is more, the earliest is told before
    its time, or, with ``when_full="fail"``, the task stops with ``BufferFull``. Raises ``GraphError`` for a limit below
    1 ms, for bounds below 1, and for an unknown word.
    """

    limit: timedelta
    max_records: int | None = None
    max_bytes: int | None = None
    when_full: WhenFull = "emit"

    def __post_init__(self) -> None:
        if self.limit_ms < 1:
            raise GraphError(f"A limit of {self.limit} holds nothing back.", action="Give 1 ms or more.")
        if self.when_full not in _WHEN_FULL:
            raise GraphError(
                f"A time limit was given when_full={self.when_full!r}.", action="Give 'emit' or 'fail'."
            )
        _check_bounds(self.max_records, self.max_bytes)

    @property
    def limit_ms(self) -> int:
        """The limit, ms."""
        return declared_ms("limit", self.limit)


@dataclass(frozen=True, slots=True)
class OnClose:
    """Until the window closes, and of open windows no more than this: else ``BufferFull`` stops the task.

    Nothing is told early, since that would not be the final result. Without any bound it is ``emit="on_close"``, which
    costs less. Raises ``GraphError`` for bounds below 1.
    """

    max_records: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_bounds(self.max_records, self.max_bytes)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may be held in one task."""

    max_records: int | None = None
    max_bytes: int | None = None
    when_full: WhenFull = "emit"

    @property
    def are_there(self) -> bool:
        """False where anything may be held."""
        return self.max_records is not None or self.max_bytes is not None

    def allow(self, records: int, held_bytes: int) -> bool:
        """Whether so much may be held."""
        return (self.max_records is None or records <= self.max_records) and (
            self.max_bytes is None or held_bytes <= self.max_bytes
        )


def bounds_of(until: object) -> Bounds:
    """How much may be held of what is held back until then."""
    match until:
        case TimeLimit():
            return Bounds(until.max_records, until.max_bytes, until.when_full)
        case OnClose():
            return Bounds(until.max_records, until.max_bytes, "fail")
        case _:
            return Bounds()


def _check_bounds(*bounds: int | None) -> None:
    for bound in bounds:
        if bound is not None and (not isinstance(bound, int) or bound < 1):
            raise GraphError(f"Nothing can be held within {bound!r}.", action="Give whole numbers from 1 on.")
