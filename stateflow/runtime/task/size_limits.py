"""How large a record each topic takes, as the cluster says; asked when it matters, and again from time to time."""

from __future__ import annotations

import logging
import sys
from typing import Protocol

from stateflow.clock import Clock
from stateflow.errors import StateflowError

_LOG = logging.getLogger(__name__)
_KEPT_SECONDS = 300.0
"""Limits are rarely changed; one that is raised is seen after so long."""
_UNKNOWN_SECONDS = 5.0
"""One that could not be told is asked for again after so long."""


class KnowsTopics(Protocol):
    """The part of a cluster that is needed here."""

    def record_bytes_max(self, topic: str) -> int:
        """The largest record that may be written to a topic."""
        ...


class SizeLimits:
    """The limits of one task's topics. Where they cannot be told, the brokers judge each record as it comes."""

    def __init__(self, cluster: KnowsTopics | None, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._known: dict[str, tuple[float, int]] = {}
        """By topic: until when it is taken for the limit, and the limit."""

    def record_bytes_max(self, topic: str) -> int:
        """The largest record that may be written to a topic."""
        if self._cluster is None:
            return sys.maxsize
        now_seconds = self._clock.monotonic_seconds()
        until_seconds, bytes_max = self._known.get(topic, (float("-inf"), sys.maxsize))
        if now_seconds >= until_seconds:
            kept_seconds = _KEPT_SECONDS
            try:
                bytes_max = self._cluster.record_bytes_max(topic)
            except StateflowError as error:  # what was known still is the best guess
                _LOG.warning("How large a record %r takes is not known: %s", topic, error)
                kept_seconds = _UNKNOWN_SECONDS
            self._known[topic] = (now_seconds + kept_seconds, bytes_max)
        return bytes_max
