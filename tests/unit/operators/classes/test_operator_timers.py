"""Timers as an operator class uses them: order, replacement, slices, failures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.steps import timers as timing
from stateflow.operators.steps.error_policy import Policy

SECOND = timedelta(seconds=1)


class Session(sf.Operator[str, str, Any]):
    """Counts words until none has come for ten seconds; words tell what else to do."""

    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        self.seen.set(self.seen.get() + 1)
        if value == "stop":
            ctx.cancel_timer("idle")
        elif value == "soon":
            ctx.timer("soon", after=SECOND, time="processing")
        elif value == "fail":
            ctx.timer("idle", after=10 * SECOND)
            raise ValueError("fail")
        elif value == "past":
            ctx.timer("past", at=1)
        elif value == "broken":
            ctx.timer("broken", after=SECOND)
        else:
            ctx.timer("idle", after=10 * SECOND)
        ctx.emit([value, ctx.timestamp_ms])

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        if name == "broken":
            self.seen.set(999)
            ctx.emit("not to be seen")
            raise ValueError("as was asked")
        ctx.emit([ctx.key, name, self.seen.get(), ctx.timestamp_ms])
        self.seen.clear()


def bench(on_error: Policy = sf.Fail(), operator: Any = Session) -> StageBench:  # noqa: B008
    app = sf.App("site")
    clicks = app.topic("clicks", key=str, value=str)
    app.operator(
        "session",
        source=app.stream(clicks, co_partitioned=True),
        sink=app.topic("out", key=str, value=sf.Json),
        on_error=on_error,
    )(operator)
    return StageBench(app.topology().stages[0])


def click(key: str, value: str, second: int) -> tuple[bytes, bytes, int]:
    return key.encode(), value.encode(), second * 1000


def out(stage: StageBench) -> list[Any]:
    return [sf.Json.decode(sent.value or b"") for sent in stage.context.sent.pop("out", [])]


def pending(stage: StageBench) -> int:
    return len(list(stage.context.stores["session-timers"].scan()))


def test_a_timer_set_again_is_put_off_and_fires_once() -> None:
    stage = bench()
    stage.feed(click("a", "x", 0), click("a", "x", 5), click("b", "x", 1))
    out(stage)
    stage.advance(10_999)
    assert out(stage) == []
    stage.advance(15_000)
    assert out(stage) == [["b", "idle", 1, 11_000], ["a", "idle", 2, 15_000]]
    stage.advance(99_000)
    assert out(stage) == []
    assert pending(stage) == 0


def test_timers_survive_a_restart_and_can_be_cancelled() -> None:
    stage = bench()
    stage.feed(click("a", "x", 0), click("b", "x", 0))
    stage.commit()
    stage = stage.restarted()
    stage.feed(click("b", "stop", 1))
    stage.commit()
    stage = stage.restarted()
    stage.advance(20_000)
    assert out(stage) == [["a", "idle", 1, 10_000]]


def test_processing_time_goes_by_the_clock_and_needs_no_input() -> None:
    stage = bench()
    stage.context.clock.advance(seconds=1_000)
    stage.feed(click("a", "soon", 3))
    out(stage)
    stage.advance(500_000)
    assert out(stage) == []
    stage.context.clock.advance(seconds=1)
    stage.advance(500_000)
    assert out(stage) == [["a", "soon", 1, 500_000]]


def test_a_time_that_has_passed_is_due_at_once_and_before_the_keys_next_record() -> None:
    stage = bench()
    stage.advance(5_000)
    stage.feed(click("a", "past", 6), click("b", "x", 6), click("a", "x", 6))
    assert out(stage) == [["past", 6_000], ["x", 6_000], ["a", "past", 1, 1], ["x", 6_000]]


@pytest.fixture
def two_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "TIMERS_PER_TURN", 2)


@pytest.mark.usefixtures("two_per_turn")
def test_a_burst_fires_in_slices_and_each_keys_timer_still_before_its_record() -> None:
    stage = bench()
    stage.feed(*[click(f"k{number}", "x", number) for number in range(6)])
    out(stage)
    stage.context.watermark_ms = 60_000
    assert stage.pipeline.advance(60_000) is True
    assert [row[0] for row in out(stage)] == ["k0", "k1"]
    stage.feed(click("k4", "x", 61))
    assert out(stage) == [["k4", "idle", 1, 14_000], ["x", 61_000]]
    assert stage.pipeline.advance(60_000) is True
    assert not stage.pipeline.advance(60_000)
    assert [row[0] for row in out(stage)] == ["k2", "k3", "k5"]


@pytest.mark.usefixtures("two_per_turn")
def test_a_window_behind_waits_for_the_timers_before_it() -> None:
    app = sf.App("site")
    clicks = app.stream(app.topic("clicks", key=str, value=str), co_partitioned=True)
    (
        clicks.process(Session, name="session")
        .filter(lambda row: row[-1] != 0 and len(row) == 4)
        .window(sf.Tumbling(timedelta(seconds=20)), emit="on_close")
        .count(name="closed")
        .to(app.topic("out", key=str, value=sf.Json))
    )
    stage = StageBench(app.topology().stages[0])
    stage.feed(*[click(f"k{number}", "x", 0) for number in range(5)])
    stage.context.watermark_ms = 100_000
    while stage.pipeline.advance(100_000):
        pass
    assert out(stage) == [1] * 5
    assert stage.context.counters["late_records_total"] == 0


@pytest.mark.parametrize("policy", [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(2, then=sf.Skip())])
def test_a_timer_that_fails_is_let_go_without_a_trace(policy: Policy) -> None:
    stage = bench(policy)
    stage.feed(click("a", "broken", 0), click("b", "x", 0))
    out(stage)
    stage.advance(60_000)
    assert out(stage) == [["b", "idle", 1, 10_000]]
    assert pending(stage) == 0
    dead = stage.context.sent.get("dead", [])
    assert len(dead) == isinstance(policy, sf.DeadLetter)
    assert all("timer 'broken' of the key 'a'" in str(letter.headers) for letter in dead)
    stage.feed(click("a", "x", 61))
    stage.advance(99_000)
    assert out(stage)[-1] == ["a", "idle", 2, 71_000]


def test_under_fail_the_error_names_timer_and_key() -> None:
    stage = bench()
    stage.feed(click("a", "broken", 0))
    with pytest.raises(ProcessingError, match=r"timer 'broken' of the key 'a': ValueError: as was asked"):
        stage.advance(60_000)


def test_a_record_that_fails_sets_no_timer() -> None:
    stage = bench(sf.Skip())
    stage.feed(click("a", "fail", 0))
    stage.advance(60_000)
    assert out(stage) == []


class WithoutOnTimer(sf.Operator[str, str, Any]):
    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        ctx.timer("x", after=SECOND)


def test_a_timer_needs_on_timer() -> None:
    stage = bench(sf.Skip(), WithoutOnTimer)
    assert stage.stage.stores == ()
    with pytest.raises(GraphError, match="no on_timer"):
        stage.feed(click("a", "x", 0))


class WithOwnTimers(Session):
    timers: sf.Value[int] = sf.state(default=0)


def test_the_store_of_timers_has_a_name_that_no_state_may_have() -> None:
    with pytest.raises(GraphError, match="session-timers"):
        bench(operator=WithOwnTimers)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "either after"),
        ({"after": SECOND, "at": 5}, "either after"),
        ({"at": datetime(2024, 1, 1)}, "no time zone"),
    ],
)
def test_a_timer_says_one_time(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        timing.due_ms_of(
            **{"after": None, "at": None, "time": "event", "event_ms": 5, "now_ms": 9, **arguments}
        )
    with pytest.raises(ValueError, match="no event time"):
        timing.due_ms_of(SECOND, None, "event", -1, 9)
    assert timing.due_ms_of(None, datetime(1970, 1, 2, tzinfo=UTC), "event", 5, 9) == 86_400_000
    assert timing.due_ms_of(SECOND, None, "processing", 5, 9) == 1_009


class Remembering(sf.Operator[str, str, Any]):
    word: sf.Value[str | None] = sf.state(ttl=10 * SECOND)

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        self.word.set(value)
        ctx.timer("soon", after=2 * SECOND)

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        ctx.emit([ctx.key, self.word.get(), ctx.watermark_ms])


@pytest.mark.usefixtures("two_per_turn")
def test_what_has_expired_is_kept_for_the_timers_that_still_see_it() -> None:
    stage = bench(operator=Remembering)
    stage.feed(*[click(f"k{number}", "x", number) for number in range(4)])
    stage.context.watermark_ms = 60_000
    assert stage.pipeline.advance(60_000) is True
    assert not stage.pipeline.advance(60_000)
    assert out(stage) == [[f"k{number}", "x", 2_000 + number * 1_000] for number in range(4)]
    assert list(stage.context.stores["session-word"].scan()) == []


def test_the_record_that_moves_event_time_comes_behind_its_keys_timers() -> None:
    stage = bench(operator=Remembering)
    stage.feed(click("a", "first", 0), click("a", "second", 60))
    assert out(stage) == [["a", "first", 2_000]]


class Chained(sf.Operator[str, str, Any]):
    """Timers that set others, each for a time that has passed."""

    def on_record(self, value: str, ctx: sf.Context[Any]) -> None:
        ctx.emit(value)
        if value == "begin":
            ctx.timer("z", at=ctx.timestamp_ms + 5)
            ctx.timer("a", at=ctx.timestamp_ms + 1)

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        ctx.emit([name, ctx.timestamp_ms])
        if name == "a":
            ctx.timer("a", at=ctx.timestamp_ms + 2)


def test_timers_that_a_timer_sets_come_in_their_turn() -> None:
    stage = bench(operator=Chained)
    stage.feed((b"k", b"begin", 0), (b"k", b"end", 8))
    assert out(stage) == ["begin", ["a", 1], ["a", 3], ["a", 5], ["z", 5], ["a", 7], "end"]


def test_timers_that_never_end_do_not_hold_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "TIMERS_PER_RECORD", 3)
    stage = bench(operator=Chained)
    stage.feed((b"k", b"begin", 0), (b"k", b"end", 1_000_000))
    assert out(stage) == ["begin", ["a", 1], ["a", 3], ["a", 5], "end"]
