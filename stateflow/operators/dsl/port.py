"""An input of an operator with several: a stream, and the handler that is called for its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stateflow.operators.classes.operator import Context
from stateflow.operators.dsl.stream import Stream

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741 - output, beside K and V


@dataclass(frozen=True, slots=True)
class Port(Generic[K, O]):
    """A stream with keys of type K and the method of an operator that is called for its records, which emits O."""

    stream: Stream[K, Any]
    handler: str
    tie_break: Callable[[Any], Any] | None = None


def port(
    stream: Stream[K, V],
    handler: Callable[[Any, V, Context[O]], None],
    *,
    tie_break: Callable[[V], Any] | None = None,
) -> Port[K, O]:
    """An input of ``app.process``: ``sf.port(orders, Match.on_order)``.

    ``handler`` is a method (self, value, ctx) of the operator class, called for each record of the stream. With
    ``order="event-time"`` there, ``tie_break`` says which of the records of one time comes first, over all inputs: the
    one for which it is smaller.
    """
    return Port(stream, getattr(handler, "__name__", repr(handler)), tie_break)
