"""A cluster that tells a test where the commits of one stage are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.kafka.cluster import KafkaCluster


def _nothing(writer: Any) -> None:
    """The default of a watched writer."""


class WatchedWriter(ForwardingWriter):
    """A real writer that tells where its commits are."""

    def __init__(
        self, real: Any, acknowledged: Callable[[Any], None], sealing: Callable[[Any], None]
    ) -> None:
        super().__init__(real)
        self._acknowledged = acknowledged
        self._sealing = sealing

    def flush(self, timeout_seconds: float = 60.0) -> None:
        self._sealing(self.inner)
        super().flush(timeout_seconds)
        self._acknowledged(self.inner)

    def send_offsets(self, *args: Any) -> None:
        self._sealing(self.inner)
        super().send_offsets(*args)


class WatchedCluster:
    """A cluster whose writers of one stage tell."""

    def __init__(
        self,
        real: KafkaCluster,
        stage: str,
        *,
        acknowledged: Callable[[Any], None] = _nothing,
        sealing: Callable[[Any], None] = _nothing,
    ) -> None:
        self._real = real
        self._stage = stage
        self._told = (acknowledged, sealing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def writer(self, transactional_id: str | None = None) -> Any:
        real = self._real.writer(transactional_id)
        chosen = transactional_id is not None and f"-{self._stage}-" in transactional_id
        return WatchedWriter(real, *self._told) if chosen else real
