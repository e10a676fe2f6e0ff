"""When a task that keeps failing looks as if another worker had it."""

from __future__ import annotations

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import (
    BrokerUnreachable,
    MembershipLost,
    ProducerFenced,
    StateflowError,
    StateLocked,
    TransactionAborted,
)
from stateflow.record import TopicPartition
from stateflow.runtime.opening.retries import Retries

PRIMARY = TopicPartition("in", 0)
ANOTHERS: list[StateflowError] = [
    ProducerFenced("fenced.", action="stop."),
    MembershipLost("gone.", action="join."),
    StateLocked("in use.", action="wait."),
    TransactionAborted("stale.", action="again.", code="ILLEGAL_GENERATION"),
]
OWN: list[StateflowError] = [
    BrokerUnreachable("away.", action="wait."),
    TransactionAborted("refused.", action="again.", code="NOT_ENOUGH_REPLICAS"),
]


def failing(errors: list[StateflowError], *, seconds_apart: float) -> Retries:
    clock = ManualClock()
    retries = Retries(clock)
    for error in errors:
        retries.failed(PRIMARY, "in-0", error)
        clock.advance(seconds=seconds_apart)
    return retries


@pytest.mark.parametrize("error", ANOTHERS, ids=lambda error: type(error).__name__)
def test_what_another_owner_causes_is_contested_once_it_lasts(error: StateflowError) -> None:
    assert not failing([error, error], seconds_apart=5.0).is_contested
    assert failing([error, error], seconds_apart=10.0).is_contested


@pytest.mark.parametrize("error", OWN, ids=lambda error: type(error).__name__)
def test_what_nobody_else_causes_is_not(error: StateflowError) -> None:
    assert not failing([error] * 10, seconds_apart=10.0).is_contested
    assert not failing([ANOTHERS[0], error], seconds_apart=60.0).is_contested, "the last one counts"


def test_a_commit_ends_it() -> None:
    retries = failing([ANOTHERS[0]], seconds_apart=60.0)
    assert retries.is_contested
    retries.committed(PRIMARY)
    assert not retries.is_contested
