"""What the tests on a real broker share: a connection to it, a place to type commands in."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateflow.testing.broker import TestBroker
from tests.broker.command_site import Site
from tests.kafka_cluster import cluster

__all__ = ["cluster", "site"]


@pytest.fixture
def site(
    broker: TestBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Site]:
    """An application of the test's own; its topics are not made yet."""
    made = Site(broker.bootstrap, tmp_path, f"t{uuid.uuid4().hex[:8]}", monkeypatch, capsys)
    yield made
    made.cluster.close()
