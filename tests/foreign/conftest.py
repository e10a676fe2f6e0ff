"""What the tests on other systems' topics share."""

from __future__ import annotations

from tests.kafka_cluster import cluster

__all__ = ["cluster"]
