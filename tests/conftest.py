"""What the test folders share: the broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from stateflow.testing.broker import TestBroker, open_test_broker


def pytest_configure() -> None:
    """Let Ctrl-C mean what it means at a terminal, in what the tests start, too.

    A shell that starts a run in the background has it ignored by all its descendants.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def broker() -> Iterator[TestBroker]:
    """One Kafka broker for the whole run (STATEFLOW_TEST_BROKER chooses it); `.bootstrap` is its address.

    Tests name their topics and groups uniquely instead of sharing them.
    """
    with open_test_broker() as running:
        yield running
