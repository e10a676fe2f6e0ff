"""The clusters that the log's contract is held against: one in memory, one real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.log_world import World, kafka_world, memory_world


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.broker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each test runs over both."""
    in_memory = request.param == "memory"
    made = memory_world() if in_memory else kafka_world(request.getfixturevalue("broker").bootstrap)
    yield made
    made.cluster.close()
