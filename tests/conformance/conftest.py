"""The clusters that the log's contract is held against: one in memory, one real."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # test folders are not packages; log_world stands beside

from log_world import World, kafka_world, memory_world


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each test runs over both."""
    in_memory = request.param == "memory"
    made = memory_world() if in_memory else kafka_world(request.getfixturevalue("broker").bootstrap)
    yield made
    made.cluster.close()
