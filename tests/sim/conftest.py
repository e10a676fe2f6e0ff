"""What the simulations share: a cluster in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stateflow.log.memory import MemoryCluster


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """An empty cluster."""
    made = MemoryCluster()
    yield made
    made.close()
