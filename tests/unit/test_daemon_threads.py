"""Calls on daemon threads: in their order, and cancelled before they have begun."""

from __future__ import annotations

import threading

from stateflow.daemon_threads import DaemonThreads


def test_calls_that_have_not_begun_can_be_cancelled() -> None:
    threads, may_end, begun = DaemonThreads("calls", 1), threading.Event(), threading.Event()

    def first() -> str:
        begun.set()
        may_end.wait()
        return "first"

    one, other = threads.submit(first), threads.submit(lambda: "other")
    begun.wait()
    threads.shutdown(wait=False, cancel_futures=True)
    may_end.set()
    assert one.result() == "first"
    assert other.cancelled()
    threads.shutdown()


def test_calls_are_made_in_their_order_until_the_last() -> None:
    threads, made = DaemonThreads("calls", 1), list[int]()
    calls = [threads.submit(made.append, number) for number in range(100)]
    threads.shutdown()
    assert made == list(range(100))
    assert all(call.done() for call in calls)
