"""Durations in whole milliseconds, the unit of Kafka's timestamps."""

from __future__ import annotations

from datetime import timedelta

from stateflow.errors import GraphError

_MILLISECOND = timedelta(milliseconds=1)


def whole_ms(span: timedelta) -> int:
    """The span in ms. Raises ``ValueError`` where a fraction is left: cutting it off would tell another time."""
    milliseconds, rest = divmod(span, _MILLISECOND)
    if rest:
        raise ValueError(f"{span} has a fraction of a millisecond")
    return milliseconds


def declared_ms(what: str, span: object) -> int:
    """The same for a span written in the graph; raises ``GraphError`` that names it (``ttl of 'count'``)."""
    if not isinstance(span, timedelta):
        raise GraphError(f"The {what} is {span!r}.", action="Give a datetime.timedelta.")
    try:
        return whole_ms(span)
    except ValueError as cause:
        raise GraphError(
            f"The {what} is {span}, which has a fraction of a millisecond.",
            action="Give whole milliseconds: event time has no finer ones.",
        ) from cause
