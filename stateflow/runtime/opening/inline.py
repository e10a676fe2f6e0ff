"""An executor for simulations: what is submitted runs at once, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


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
