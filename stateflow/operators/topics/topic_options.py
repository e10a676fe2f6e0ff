"""A topic as the application declares it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from stateflow.callbacks import checked_or_none
from stateflow.codec.base import Codec
from stateflow.duration import declared_ms
from stateflow.errors import GraphError
from stateflow.operators.topics.sources import EventTime

K = TypeVar("K")
V = TypeVar("V")


V_contra = TypeVar("V_contra", contravariant=True)


class Takes(Protocol[V_contra]):
    """What values of a type may be written to; a topic takes what its codec does, and None, a tombstone."""

    @property
    def name(self) -> str:
        """The topic's name."""
        ...

    def encoded(self, value: V_contra, /) -> bytes | None:
        """A value as it is written."""
        ...


@dataclass(frozen=True)
class Topic(Generic[K, V]):
    """A topic of other producers or consumers: its name, what it holds, and when that happened.

    ``partitions`` is only for creating it (``stateflow topics apply``); an existing topic stays as it is.
    """

    name: str
    key: Codec[K]
    value: Codec[V]
    partitions: int | None = None
    timestamp: EventTime | None = None
    """Event time of a value; the record's own timestamp without it."""
    max_ahead: timedelta | None = None
    """How far ahead a record's event time may be; None sets no bound."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key.for_keys())  # equal keys are of one partition
        checked_or_none(self.timestamp, "timestamp of the topic", self.name)
        if self.max_ahead_ms is not None and self.max_ahead_ms < 0:
            raise GraphError(
                f"The max_ahead of {self.name!r} is negative.", action="Give zero or more, or leave it out."
            )

    def encoded(self, value: V | None, /) -> bytes | None:
        """A value as it is written; None is a tombstone. Raises ``EncodeError``."""
        return None if value is None else self.value.encode(value)

    @property
    def max_ahead_ms(self) -> int | None:
        """``max_ahead`` in ms."""
        return None if self.max_ahead is None else declared_ms(f"max_ahead of {self.name!r}", self.max_ahead)


def check_topic(found: Any, what: str) -> None:
    """Raise ``GraphError`` where something else stands in the place of a topic that is to be ``what``: read."""
    if isinstance(found, Topic):
        return
    if isinstance(found, str):
        action = f"Declare it and use the result: topic = app.topic({found!r}, key=…, value=…)."
    elif hasattr(found, "to_table"):
        action = (
            "A stream becomes a table by stream.to_table(name=…); what is computed already is not read again."
        )
    else:
        action = "Give what app.topic(…) returns."
    raise GraphError(f"{found!r:.120} is to be {what}, and is no topic.", action=action)
