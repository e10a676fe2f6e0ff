"""The broker that all processes of a run share: begun when it is asked for, the same for all, gone at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stateflow.connectors.broker.node import JVM_VARIABLE
from stateflow.connectors.broker.processes import command_line
from stateflow.errors import SetupError
from stateflow.testing.broker import VARIABLE
from tests.shared_broker import HEAP_MIB, BrokerLender, open_broker

pytestmark = pytest.mark.broker


@contextmanager
def lending() -> Iterator[BrokerLender]:
    lender = BrokerLender()
    try:
        yield lender
    finally:
        lender.close()


@pytest.fixture(autouse=True)
def _embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_everyone_is_given_the_same_one_and_it_ends_with_the_lender() -> None:
    with lending() as lender:
        with open_broker(lender.address) as one, open_broker(lender.address) as other:
            assert one == other
            assert one.pid is not None
            assert f"-Xmx{HEAP_MIB}m" in (command_line(one.pid) or "")
        with open_broker(lender.address) as third:
            assert third == one, "it goes on when those who asked for it have ended"
        assert one.log_dir is not None
        assert one.log_dir.is_dir()
    assert not one.log_dir.exists()
    assert not os.path.exists(lender.address)


def test_who_asks_hears_why_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JVM_VARIABLE, "-XX:NoSuchOption")
    with (
        lending() as lender,
        pytest.raises(SetupError, match="Java Virtual Machine"),
        open_broker(lender.address),
    ):
        pass


def test_nobody_asked_so_nothing_was_started() -> None:
    with lending() as lender:
        pass
    assert not os.path.exists(lender.address)
