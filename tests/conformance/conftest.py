"""The clusters that the log's contract is held against: in memory, at once and with delays, and a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.log_world import World, kafka_world, memory_world


@pytest.fixture(params=["memory", "delayed", pytest.param("kafka", marks=pytest.mark.broker)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each test runs over all of them."""
    if request.param == "kafka":
        made = kafka_world(request.getfixturevalue("broker").bootstrap)
    else:
        made = memory_world(delays_seed=7 if request.param == "delayed" else None)
    yield made
    made.cluster.close()
