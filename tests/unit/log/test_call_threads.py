"""Calls of a client that may never return: who waits for them, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from stateflow.errors import BrokerUnreachable
from stateflow.log.kafka import call_threads
from stateflow.log.kafka.call_threads import CallOverdue, CallThreads, TransactionCalls
from tests.waiting import wait_until


@pytest.fixture
def threads() -> Iterator[CallThreads]:
    made = CallThreads()
    yield made
    made.close()


def calling() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kafka-call"]


def test_what_a_call_returns_or_raises_comes_out_of_a_thread_that_takes_the_next(
    threads: CallThreads,
) -> None:
    first = threads.run(threading.current_thread, 10.0)
    with pytest.raises(ZeroDivisionError):
        threads.run(lambda: 1 // 0, 10.0)
    assert threads.run(threading.current_thread, 10.0) is first
    assert first.daemon, "a call that never returns must not hold up the end of the process"


def test_a_call_that_is_overdue_is_left_to_its_thread_which_ends_with_it(threads: CallThreads) -> None:
    may_return, of_others = threading.Event(), calling()
    with pytest.raises(CallOverdue):
        threads.run(may_return.wait, 0.05)
    (left,) = [thread for thread in calling() if thread not in of_others]
    assert threads.run(lambda: 1, 10.0) == 1, "others go on"
    may_return.set()
    wait_until(lambda: not left.is_alive(), "the thread to end")


def test_a_client_with_an_overdue_call_is_stuck(
    threads: CallThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_threads, "_OVERDUE_SECONDS", 0.05)
    calls = TransactionCalls(threads, "broker:9092")
    given: list[float] = []
    calls.make(given.append, 3.0)
    assert (given, calls.is_stuck) == ([3.0], False)
    never = threading.Event()
    with pytest.raises(BrokerUnreachable, match="has not come back"):
        calls.make(lambda _: never.wait(), 0.05)
    assert calls.is_stuck
    never.set()
