"""Stateful operators written as functions: state declared as parameters, given as handles."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from stateflow.callbacks import EMIT, called, checked, without_partial
from stateflow.errors import GraphError
from stateflow.operators.classes.operator import Context, Operator, not_a_class
from stateflow.state.kinds import StateOptions

RecordFunction = Callable[..., None]
"""``function(value, ctx, total: Value[int] = state(default=0), …)``, called for each record."""
TimerFunction = Callable[..., None]
"""``function(name, ctx, total, …)``, called for each timer with the states that it names."""


def operator_of(
    function: RecordFunction, on_timer: TimerFunction | None = None, name: str | None = None
) -> type[Operator[Any, Any, Any]]:
    """The operator class that a function, and one for its timers, amounts to.

    A ``functools.partial`` of one gives parameters that are no states by their names. Raises ``GraphError`` for
    parameters that are neither the record's nor states nor given so, and for what is no function that can be called.
    """
    if isinstance(function, Operator) or isinstance(getattr(function, "func", None), type):
        raise not_a_class(name or "process", function)
    checked(function, "The operator", name, instead=EMIT)
    if on_timer is not None:
        checked(on_timer, "on_timer of the operator", name, instead=EMIT)
    given = function.keywords if isinstance(function, functools.partial) else {}
    signature = inspect.signature(function).parameters
    parameters = [parameter for parameter in signature.values() if parameter.name not in given]
    if len(parameters) < 2:
        raise _wrong(function, "takes fewer than two parameters", "Take (value, ctx) and the states.")
    value, context, *others = parameters
    hints = _hints(function)
    states = {parameter.name: parameter.default for parameter in others}
    unknown = [name for name, default in states.items() if not isinstance(default, StateOptions)]
    if unknown:
        raise _wrong(function, f"has a parameter {unknown[0]!r} that is no state", "Give it = sf.state(…).")
    body: dict[str, Any] = {
        **states,
        "__annotations__": {name: hints[name] for name in states if name in hints},
        "__doc__": called(function).__doc__,
        "__module__": called(function).__module__,
        "on_record": _record_method(function, tuple(states)),
    }
    if on_timer is not None:
        body["on_timer"] = _timer_method(on_timer, states)
    generic: Any = Operator
    base = generic[Any, hints.get(value.name, Any), _output(hints.get(context.name))]
    return types.new_class(_name_of(function), (base,), {}, lambda namespace: namespace.update(body))


def _record_method(function: RecordFunction, names: tuple[str, ...]) -> Callable[..., None]:
    def on_record(self: Any, value: Any, ctx: Context[Any]) -> None:
        function(value, ctx, **{name: getattr(self, name) for name in names})

    return on_record


def _timer_method(function: TimerFunction, states: Mapping[str, Any]) -> Callable[..., None]:
    given = function.keywords if isinstance(function, functools.partial) else {}
    names = [name for name in inspect.signature(function).parameters if name not in given][2:]
    unknown = [name for name in names if name not in states]
    if unknown:
        what = f"names {unknown[0]!r}, which the function for records does not declare"
        raise _wrong(function, what, "Take (name, ctx) and states of that function, by its names.")

    def on_timer(self: Any, name: str, ctx: Context[Any]) -> None:
        function(name, ctx, **{state: getattr(self, state) for state in names})

    return on_timer


def _output(context: Any) -> Any:
    """O of an annotation ``Context[O]``."""
    return typing.get_args(context)[0] if typing.get_origin(context) is Context else Any


def _name_of(function: Any) -> str:
    function = without_partial(function)
    return str(getattr(function, "__name__", type(function).__name__))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(called(function))
    except NameError as cause:
        raise _wrong(
            function, f"has annotations that cannot be read: {cause}", "Import the named type at run time."
        ) from cause


def _wrong(function: Callable[..., Any], what: str, action: str) -> GraphError:
    return GraphError(f"The operator {_name_of(function)!r} {what}.", action=action)
