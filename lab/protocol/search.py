"""Visit every state that a model can reach, breadth first, and tell the shortest history that breaks a promise."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

W = TypeVar("W", bound=Hashable)


class Broken(Exception):
    """A promise did not hold."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found: states visited, and the shortest history that breaks a promise, with the
    promise."""

    states: int
    broken: str | None = None
    history: tuple[str, ...] = ()


class Model(Protocol[W]):
    """What a search needs to know of a model."""

    def start(self) -> W:
        """The first state."""
        ...

    def steps(self, world: W) -> Iterator[tuple[str, W]]:
        """Everything that can happen next; raises ``Broken``."""
        ...

    def check(self, world: W) -> None:
        """Raises ``Broken`` if something does not hold that must hold in every state."""
        ...

    def check_rest(self, world: W) -> None:
        """Raises ``Broken`` if something does not hold that must hold where nothing can happen any more."""
        ...


def search(model: Model[W], states_max: int) -> Outcome:
    """Every state within the model's bounds, until a promise is broken."""
    with _uncollected():
        return _search(model, states_max)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: all states stay to the end, and none is in a cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _search(model: Model[W], states_max: int) -> Outcome:
    start = model.start()
    came_from: dict[W, tuple[W, str] | None] = {start: None}
    todo = deque([start])
    while todo:
        world = todo.popleft()
        try:
            model.check(world)
            is_at_rest = True
            for name, reached in model.steps(world):
                is_at_rest = False
                step = (world, name)
                if came_from.setdefault(reached, step) is step:
                    todo.append(reached)
            if is_at_rest:
                model.check_rest(world)
        except Broken as broken:
            return Outcome(len(came_from), str(broken), _history(came_from, world))
        assert len(came_from) <= states_max, "the search is too large: allow fewer faults"
    return Outcome(len(came_from))


def _history(came_from: dict[W, tuple[W, str] | None], world: W) -> tuple[str, ...]:
    names: list[str] = []
    step = came_from[world]
    while step is not None:
        names.append(step[1])
        step = came_from[step[0]]
    return tuple(reversed(names))
