"""A topic as the application declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from stateflow.codec.base import Codec
from stateflow.operators.sources import EventTime

K = TypeVar("K")
V = TypeVar("V")


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
