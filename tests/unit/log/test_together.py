"""Questions asked at the same time: one request, sent after all of them, and no one's failure is another's."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from stateflow.errors import TopicMissing
from stateflow.log.together import Together

WAIT_SECONDS = 30.0


class Answering:
    """Tells the number of the request of each item; requests wait until they are let go."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.begun = threading.Semaphore(0)
        self.goes = threading.Semaphore(0)
        self.together: Together[str, int] = Together(self._answer)

    def _answer(self, items: Collection[str]) -> dict[str, int]:
        self.requests.append(sorted(items))
        number = len(self.requests)
        self.begun.release()
        assert self.goes.acquire(timeout=WAIT_SECONDS)
        if "bad" in items:
            raise TopicMissing("there is no such thing.", action="ask for another.", topic="bad")
        return {item: number for item in items if item != "unknown"}

    def asked(self, pool: ThreadPoolExecutor, *items: str) -> Future[dict[str, int]]:
        """Ask on another thread; on return the question is with those that are asked next, or under way."""
        before = self.together._next.askers
        future = pool.submit(self.together, items)
        deadline = threading.Event()
        while self.together._next.askers == before and not future.done() and not self.begun._value:
            assert not deadline.wait(0.001)
        return future


def test_those_who_ask_during_a_request_are_answered_by_the_next() -> None:
    answering = Answering()
    with ThreadPoolExecutor(4) as pool:
        first = answering.asked(pool, "a")
        assert answering.begun.acquire(timeout=WAIT_SECONDS)
        later = [answering.asked(pool, *items) for items in (("a", "b"), ("b",), ("c", "unknown"))]
        answering.goes.release()
        assert first.result(WAIT_SECONDS) == {"a": 1}
        answering.goes.release()
        assert [each.result(WAIT_SECONDS) for each in later] == [{"a": 2, "b": 2}, {"b": 2}, {"c": 2}]
    assert answering.requests == [["a"], ["a", "b", "c", "unknown"]]


def test_what_fails_for_several_is_asked_again_by_each() -> None:
    answering = Answering()
    with ThreadPoolExecutor(4) as pool:
        first = answering.asked(pool, "a")
        assert answering.begun.acquire(timeout=WAIT_SECONDS)
        bad, good = answering.asked(pool, "bad"), answering.asked(pool, "good")
        answering.goes.release(4)
        assert first.result(WAIT_SECONDS) == {"a": 1}
        assert good.result(WAIT_SECONDS).keys() == {"good"}
        with pytest.raises(TopicMissing):
            bad.result(WAIT_SECONDS)
    assert answering.requests[1] == ["bad", "good"]
    assert sorted(answering.requests[2:]) == [["bad"], ["good"]]


def test_one_who_asks_alone_meets_the_failure_at_once() -> None:
    answering = Answering()
    answering.goes.release(1)
    with pytest.raises(TopicMissing):
        answering.together(["bad"])
    assert answering.requests == [["bad"]]
