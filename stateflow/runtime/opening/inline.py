"""Work that is done at once, in the caller's thread, and handed on as from a pool: alone, and for simulations."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Outcome(Generic[T]):
    """What became of work that was done at once: as much of a future as is asked for, at a tenth of its cost."""

    _value: T | None
    _error: Exception | None

    def result(self) -> T:
        """What the work gave; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None only where that is what it gave


def done_at_once(work: Callable[[], T]) -> Outcome[T]:
    """Do it. Only errors are kept in the outcome: what is no ``Exception`` ends the caller."""
    try:
        return Outcome(work(), None)
    except Exception as error:  # noqa: BLE001 - handed to whoever asks, as a pool does
        return Outcome(None, error)


def inline_without(threads: int) -> Executor | None:
    """What runs all at once where a setting allows no threads; None where whoever asks has some of its own."""
    return None if threads else InlineExecutor()


class InlineExecutor(Executor):
    """Runs everything at once in the caller's thread: for simulations, where one thread decides all order."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """A future that is done. Only errors are kept in it: what is no ``Exception`` ends the caller."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - handed to whoever asks the future, as a pool does
            future.set_exception(error)
        return future
