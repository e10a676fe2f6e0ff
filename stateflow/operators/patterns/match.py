"""What a pattern has taken: records by the names of its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

V = TypeVar("V")
D = TypeVar("D")


class Match(Generic[V]):
    """The records of one match, or those that one has taken so far, in the order of event time."""

    __slots__ = ("_taken", "_times_ms")

    def __init__(self, taken: Mapping[str, Sequence[V]], times_ms: tuple[int, int]) -> None:
        self._taken = taken
        self._times_ms = times_ms

    def __getitem__(self, step: str) -> V:
        """The record of a step, the last one where it took several. Raises ``KeyError`` where it took none."""
        return self._of(step)[-1]

    def __contains__(self, step: str) -> bool:
        """True where a step took a record."""
        return bool(self._taken.get(step))

    @overload
    def get(self, step: str) -> V | None: ...
    @overload
    def get(self, step: str, default: D) -> V | D: ...
    def get(self, step: str, default: Any = None) -> Any:
        """The same, or the default where the step took none. Raises ``KeyError`` for a name that no step has."""
        return self[step] if self._taken[step] else default

    def all(self, step: str) -> list[V]:
        """All records of a step. Raises ``KeyError`` for a name that no step has."""
        return list(self._taken[step])

    @property
    def first_ms(self) -> int:
        """Event time of the first record, ms; −1 before there is one."""
        return self._times_ms[0]

    @property
    def last_ms(self) -> int:
        """Event time of the last record, ms; −1 before there is one."""
        return self._times_ms[1]

    def __repr__(self) -> str:
        return f"Match({', '.join(f'{name}={list(taken)!r}' for name, taken in self._taken.items())})"

    def _of(self, step: str) -> Sequence[V]:
        found = self._taken[step]
        if not found:
            raise KeyError(f"the step {step!r} took no record")
        return found
