"""A writer that asks somebody before each of its commits, who may wait, count or raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stateflow.log.base import Appended
from stateflow.log.forwarding import ForwardingWriter
from stateflow.record import TopicPartition


class AskingWriter(ForwardingWriter):
    """Passes everything on; ``before_commit`` is called before each commit."""

    def __init__(self, inner: Any, before_commit: Callable[[], None]) -> None:
        super().__init__(inner)
        self._before_commit = before_commit

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        """Ask, then commit."""
        self._before_commit()
        return super().commit(timeout_seconds)
