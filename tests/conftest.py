"""What the test folders share: the broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stateflow.testing.broker import TestBroker, open_test_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[TestBroker]:
    """One Kafka broker for the whole run (STATEFLOW_TEST_BROKER chooses it); `.bootstrap` is its address.

    Tests name their topics and groups uniquely instead of sharing them.
    """
    with open_test_broker() as running:
        yield running
