"""A real Apache Kafka broker as a child process: its jars, its Java, its files and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stateflow.connectors.broker.cluster import EmbeddedKafka

__all__ = ["EmbeddedKafka"]


def __getattr__(name: str) -> Any:
    """The broker's class brings the Kafka client: whoever asks only which broker runs need not wait for it."""
    if name != "EmbeddedKafka":
        raise AttributeError(f"module 'stateflow.connectors.broker' has no attribute {name!r}")
    from stateflow.connectors.broker.cluster import EmbeddedKafka

    return EmbeddedKafka
