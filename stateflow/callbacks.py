"""Functions that the application gives to verbs, looked at while the graph is built.

Python takes any function for any other: a call of an ``async def`` or of a function with ``yield`` does nothing but
return an object, which is true. A filter would keep every record, an operator would swallow them all.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from stateflow.errors import GraphError

F = TypeVar("F")

RETURN_ONE = "Let it return its result; several results for a value are flat_map's."
USE_MAP_ASYNC = "Write a plain def; an outside service is asked with map_async, before this step."
EMIT = "Pass results on with ctx.emit(value), as often as there are any, and do not yield them."


def checked(
    function: F,
    verb: str,
    name: str | None = None,
    *,
    several: bool = False,
    waits: bool = False,
    instead: str = RETURN_ONE,
) -> F:
    """The function, if the verb can call it; raises ``GraphError`` that says what to write instead.

    ``several`` results may come from a generator; ``waits`` is said of a verb that takes an ``async def``. ``instead``
    is the advice for a function that has a ``yield`` in vain.
    """
    where = verb if name is None else f"{verb} {name!r}"
    if not callable(function):
        field = f", or sf.col({function!r}) for the field" if isinstance(function, str) else ""
        raise GraphError(
            f"{where} was given {function!r}, which is not a function.",
            action=f"Give a function of the value, such as lambda value: …{field}.",
        )
    given = f"{where} was given {_shown(function)}"
    code = called(function)
    if inspect.isasyncgenfunction(code) or (inspect.iscoroutinefunction(code) and not waits):
        raise GraphError(
            f"{given}, an `async def`: a call of it does nothing until it is awaited, which this verb does not do.",
            action=USE_MAP_ASYNC if not waits else RETURN_ONE,
        )
    if inspect.isgeneratorfunction(code) and not several:
        raise GraphError(
            f"{given}, which has a `yield`: a call of it does nothing until somebody asks for its values.",
            action=instead,
        )
    return function


def checked_pick(pick: F, verb: str, name: str | None = None) -> F:
    """The same of a function, a column expression or a field's name."""
    return pick if isinstance(pick, str) else checked(pick, verb, name)


def checked_or_none(function: F | None, verb: str, name: str | None = None) -> F | None:
    """The same of a function that need not be given."""
    return None if function is None else checked(function, verb, name)


def without_partial(function: Any) -> Any:
    """The function of a partial; any other as it is."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def called(function: Any) -> Callable[..., Any]:
    """What runs when it is called: the function of a partial, the ``__call__`` of an object."""
    function = without_partial(function)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    call: Callable[..., Any] = type(function).__call__
    return call


def _shown(function: Any) -> str:
    function = without_partial(function)
    name = getattr(function, "__qualname__", None)
    return repr(function)[:80] if name is None else f"the function {name.replace('<locals>.', '')!r}"
