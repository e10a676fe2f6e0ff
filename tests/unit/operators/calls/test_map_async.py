"""Values replaced by answers of a service: order, bounds, failures, the cache."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError, StateflowError, TransactionAborted
from stateflow.lab.applications.stage import StageBench
from stateflow.record import Headers

OUT = "out"
SOON = timedelta(milliseconds=40)
NO_PAUSE: dict[str, Any] = {"pause": timedelta(0)}


class Service:
    """Answers ten times the question, once ``together`` calls are under way; the last that came first."""

    def __init__(self, together: int = 1) -> None:
        self.together = together
        self.asked: list[int] = []
        self.answered: list[int] = []
        self.cancelled: list[int] = []
        self.under_way = 0
        self.most_under_way = 0
        self.fails: Counter[int] = Counter()
        """Question → how many attempts at it fail."""
        self.hangs: set[int] = set()
        self._parked: list[asyncio.Event] = []

    async def ask(self, question: int) -> int:
        """The call."""
        self.asked.append(question)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if question in self.hangs:
                await asyncio.Event().wait()
            await self._turn()
            if self.fails[question] > 0:
                self.fails[question] -= 1
                raise ConnectionError(f"refused {question}")
        except asyncio.CancelledError:
            self.cancelled.append(question)
            raise
        finally:
            self.under_way -= 1
        self.answered.append(question)
        return 10 * question

    async def _turn(self) -> None:
        self._parked.append(mine := asyncio.Event())
        if len(self._parked) >= self.together:
            self._parked.pop().set()
        await mine.wait()
        if self._parked:
            self._parked.pop().set()


@pytest.fixture
def benches() -> Iterator[list[StageBench]]:
    made: list[StageBench] = []
    yield made
    for bench in made:
        bench.context.closing.close()
    for thread in threading.enumerate():
        if "map_async" in thread.name:
            thread.join(5)
            assert not thread.is_alive(), thread.name


@pytest.fixture(name="bench")
def bench_of(benches: list[StageBench]) -> Any:
    def build(function: Any, **options: Any) -> StageBench:
        app = sf.App("test")
        stream = app.stream(app.topic("in", key=str, value=int))
        stream.map_async(function, **options).to(app.topic(OUT, key=str, value=sf.Json))
        benches.append(StageBench(app.topology().stages[0]))
        return benches[-1]

    return build


def feed(bench: StageBench, *values: int, keys: str = "", headers: list[Headers] | None = None) -> None:
    codec, names = sf.Integer, keys or "k" * len(values)
    rows = [(name.encode(), codec.encode(value), value) for name, value in zip(names, values, strict=True)]
    bench.feed(*rows, headers=headers or [])


def results(bench: StageBench) -> list[Any]:
    return [sf.Json.decode(sent.value) for sent in bench.context.sent.get(OUT, []) if sent.value is not None]


def test_results_come_in_order_though_answers_do_not(bench: Any) -> None:
    service = Service(together=5)
    stage = bench(service.ask, concurrency=5)
    feed(stage, 1, 2, 3, 4, 5, headers=[(("n", b"%d" % n),) for n in range(5)])
    assert service.answered == [5, 4, 3, 2, 1]
    assert results(stage) == [10, 20, 30, 40, 50]
    sent = stage.context.sent[OUT]
    assert [(each.timestamp_ms, each.headers) for each in sent] == [
        (n + 1, (("n", b"%d" % n),)) for n in range(5)
    ]


def test_no_more_calls_are_under_way_than_allowed_and_all_of_these(bench: Any) -> None:
    service = Service(together=3)
    stage = bench(service.ask, concurrency=3)
    feed(stage, *range(30))
    assert service.most_under_way == 3
    assert results(stage) == [10 * value for value in range(30)]
    assert service.under_way == 0


def test_unordered_results_come_as_they_are_there_but_in_order_by_key(bench: Any) -> None:
    service = Service(together=6)
    stage = bench(service.ask, concurrency=6, ordered=False)
    feed(stage, 1, 2, 3, 4, 5, 6, keys="abacab")
    assert service.answered == [6, 5, 4, 3, 2, 1]
    found = results(stage)
    assert found != sorted(found)
    assert sorted(found) == [10, 20, 30, 40, 50, 60]
    assert [value for value in found if value in (10, 30, 50)] == [10, 30, 50]
    assert [value for value in found if value in (20, 60)] == [20, 60]
    assert [(s.key, s.timestamp_ms * 10) for s in stage.context.sent[OUT]] == [
        (b"abacab"[value // 10 - 1 : value // 10], value) for value in found
    ]


def test_unordered_results_are_passed_on_while_others_are_under_way(bench: Any) -> None:
    service = Service()
    service.hangs = {1}
    passed: list[Any] = []

    async def ask(question: int) -> int:
        if question == 1:  # answers when the steps behind have seen the others
            while not passed:
                await asyncio.sleep(0.001)
        return question

    app = sf.App("test")
    stream = app.stream(app.topic("in", key=str, value=int)).map_async(ask, ordered=False)
    stream.peek(passed.append).to(app.topic(OUT, key=str, value=sf.Json))
    stage = StageBench(app.topology().stages[0])
    feed(stage, 1, 2, keys="ab")
    assert passed == [2, 1]
    stage.context.closing.close()


@pytest.mark.parametrize("ordered", [True, False])
def test_the_first_failure_stops_and_cancels_what_is_under_way(bench: Any, ordered: bool) -> None:
    service = Service()
    service.hangs, service.fails[3] = {1, 2}, 1
    stage = bench(service.ask, concurrency=3, ordered=ordered)
    with pytest.raises(ProcessingError) as failure:
        feed(stage, 1, 2, 3, 4, 5)
    assert "ConnectionError: refused 3" in failure.value.message
    assert failure.value.fields["offset"] == 2
    assert "raise ConnectionError" in str(failure.value.fields["traceback"])
    assert service.under_way == 0
    assert {1, 2} <= set(service.cancelled)
    assert results(stage) == []


@pytest.mark.parametrize("ordered", [True, False])
def test_what_fails_for_good_follows_the_policy(bench: Any, ordered: bool) -> None:
    service = Service()
    service.fails.update({2: 1, 4: 99, 5: 3})
    options = {"retries": 2, "on_error": sf.DeadLetter("dead"), "ordered": ordered, **NO_PAUSE}
    stage = bench(service.ask, **options)
    feed(stage, 1, 2, 3, 4, 5, 6, keys="abcdef")
    assert sorted(results(stage)) == [10, 20, 30, 60]
    letters = [dict(sent.headers) for sent in stage.context.sent["dead"]]
    assert sorted((each["sf-offset"], each["sf-attempts"]) for each in letters) == [
        (b"3", b"3"),
        (b"4", b"3"),
    ]
    assert {each["sf-error-class"] for each in letters} == {b"ConnectionError"}
    assert stage.context.counters == {"retried_records_total": 5, "dead_letters_total": 2}


def test_retry_as_the_policy_is_the_same(bench: Any) -> None:
    service = Service()
    service.fails.update({1: 1, 2: 2})
    stage = bench(service.ask, on_error=sf.Retry(1, then=sf.Skip()), **NO_PAUSE)
    feed(stage, 1, 2, 3)
    assert results(stage) == [10, 30]
    assert stage.context.counters == {"retried_records_total": 2, "skipped_records_total": 1}


def test_a_call_that_takes_too_long_is_cancelled_and_tried_again(bench: Any) -> None:
    service = Service()
    service.hangs = {2}
    stage = bench(service.ask, timeout=SOON, retries=1, on_error=sf.DeadLetter("dead"), **NO_PAUSE)
    feed(stage, 1, 2, 3)
    assert results(stage) == [10, 30]
    assert service.cancelled == [2, 2]
    (letter,) = stage.context.sent["dead"]
    told = dict(letter.headers)
    assert told["sf-error-class"] == b"TimeoutError"
    assert told["sf-error-message"] == b"no answer within 0.04 s"
    assert told["sf-attempts"] == b"2"


def test_a_timeout_of_the_service_is_told_as_its_own(bench: Any) -> None:
    async def ask(_: int) -> int:
        raise TimeoutError("gateway")

    with pytest.raises(ProcessingError, match="TimeoutError: gateway"):
        feed(bench(ask), 1)


def test_a_call_cancelled_by_what_it_calls_is_a_failure(bench: Any) -> None:
    async def ask(_: int) -> int:
        raise asyncio.CancelledError

    stage = bench(ask, on_error=sf.Skip())
    feed(stage, 1)
    assert stage.context.counters == {"skipped_records_total": 1}


def test_functions_that_block_run_in_threads(bench: Any) -> None:
    together = threading.Barrier(4)

    def ask(question: int) -> int:
        together.wait(5)
        return -question

    stage = bench(ask, concurrency=4)
    feed(stage, *range(8))
    assert results(stage) == [-value for value in range(8)]


def test_a_thread_that_hangs_is_not_waited_for_and_counts_as_under_way(bench: Any) -> None:
    release = threading.Event()
    begun: list[int] = []

    def ask(question: int) -> int:
        begun.append(question)
        if question == 1:
            release.wait(30)
        return question

    stage = bench(ask, concurrency=1, timeout=SOON, on_error=sf.Skip())
    feed(stage, 1, 2)
    assert (begun, results(stage)) == ([1], [])
    release.set()
    feed(stage, 3)
    assert (begun, results(stage)) == ([1, 3], [3])


def raising(error: BaseException, _: int) -> int:
    raise error


def test_blocking_functions_may_raise_stop_iteration(bench: Any) -> None:
    with pytest.raises(ProcessingError, match="StopIteration"):
        feed(bench(partial(raising, StopIteration())), 1)


@pytest.mark.parametrize("ordered", [True, False])
def test_what_is_no_exception_is_raised_as_it_is(bench: Any, ordered: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        feed(bench(partial(raising, KeyboardInterrupt()), on_error=sf.Skip(), ordered=ordered), 1)


def test_an_error_that_no_record_caused_follows_no_policy(bench: Any) -> None:
    error = StateflowError("the disk is full", action="make room")
    with pytest.raises(StateflowError, match="the disk is full"):
        feed(bench(partial(raising, error), on_error=sf.Skip()), 1)


def test_other_callables_are_recognized(bench: Any) -> None:
    class Asking:
        async def __call__(self, question: int) -> int:
            return question + 1

    for function in (Asking(), partial(Service().ask), lambda value: Service().ask(value)):
        stage = bench(function)
        feed(stage, 1)
        assert results(stage) in ([2], [10])


def test_a_part_is_asked_for_and_the_answer_put_into_the_value(bench: Any) -> None:
    service = Service()
    stage = bench(service.ask, of=lambda value: value % 3, into=lambda value, answer: [value, answer])
    feed(stage, 4, 5, 6)
    assert results(stage) == [[4, 10], [5, 20], [6, 0]]
    assert service.asked == [1, 2, 0]


def test_parts_and_results_that_fail_follow_the_policy(bench: Any) -> None:
    options = {"of": lambda value: 6 // value, "into": lambda value, answer: value // (answer - 20)}
    stage = bench(Service().ask, on_error=sf.Skip(), **options)
    feed(stage, 0, 2, 3)
    assert results(stage) == [0]
    assert stage.context.counters == {"skipped_records_total": 2}


def test_the_cache_keeps_answers_for_a_time_and_so_many_of_them(bench: Any) -> None:
    service = Service()
    stage = bench(service.ask, cache=sf.Cache(2, timedelta(seconds=10)))
    feed(stage, 1, 2, 1, 1)
    assert results(stage) == [10, 20, 10, 10]
    assert service.asked == [1, 2]  # equal ones of one batch once
    stage.context.clock.advance(seconds=9)
    feed(stage, 1, 3)  # 2 goes, which was used longest ago
    assert service.asked == [1, 2, 3]
    feed(stage, 1, 2)
    assert service.asked == [1, 2, 3, 2]
    stage.context.clock.advance(seconds=1)
    feed(stage, 1)  # asked ten seconds ago
    assert service.asked == [1, 2, 3, 2, 1]
    assert results(stage)[-5:] == [10, 30, 10, 20, 10]


@pytest.mark.parametrize("ordered", [True, False])
def test_failures_are_not_cached(bench: Any, ordered: bool) -> None:
    service = Service()
    service.fails[1] = 1
    cache = sf.Cache(9, timedelta(seconds=10))
    stage = bench(service.ask, cache=cache, on_error=sf.Skip(), ordered=ordered)
    feed(stage, 1, 1, 2)
    feed(stage, 1, 2)
    assert service.asked == [1, 2, 1]
    assert stage.context.counters == {"skipped_records_total": 2}
    assert results(stage) == [20, 10, 20]


def test_a_question_that_cannot_be_compared_follows_the_policy(bench: Any) -> None:
    options = {"of": lambda value: object() if value == 1 else value, "into": lambda _, answer: answer}
    stage = bench(Service().ask, cache=sf.Cache(9, SOON), on_error=sf.Skip(), **options)
    feed(stage, 1, 2)
    assert results(stage) == [20]
    assert stage.context.counters == {"skipped_records_total": 1}


def test_when_the_host_stops_calls_are_cancelled(bench: Any) -> None:
    service = Service()
    service.hangs = {2}
    stage = bench(service.ask)
    stage.context.is_stopping = True
    with pytest.raises(TransactionAborted, match="is to stop"):
        feed(stage, 1, 2)
    assert service.cancelled == [2]
    feed(stage, 1)  # what comes back soon is waited for
    assert results(stage) == [10]


def test_a_stage_is_told_how_many_are_worked_on_at_once(bench: Any) -> None:
    assert bench(Service().ask, concurrency=32).context.records_at_once == 32


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": 1_001},
        {"timeout": timedelta(0)},
        {"timeout": timedelta(microseconds=1)},
        {"pause": timedelta(seconds=-1)},
        {"retries": -1},
        {"retries": 1, "on_error": sf.Retry(2)},
        {"timeout": timedelta(minutes=5)},
        {"timeout": timedelta(minutes=1), "retries": 4},
        {"of": lambda value: value},
        {"into": lambda value, answer: value + answer},
    ],
    ids=lambda options: "-".join(map(str, options)),
)
def test_what_makes_no_sense_is_refused(bench: Any, options: dict[str, Any]) -> None:
    with pytest.raises(GraphError):
        bench(Service().ask, **options)


@pytest.mark.parametrize(("entries_max", "ttl"), [(0, SOON), (1, timedelta(0))])
def test_a_cache_that_keeps_nothing_is_refused(entries_max: int, ttl: timedelta) -> None:
    with pytest.raises(GraphError):
        sf.Cache(entries_max, ttl)
