"""Rounds: what an operator does at each tick for all of its keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.steps import timers as timing
from stateflow.operators.steps.error_policy import Policy

TEN = timedelta(seconds=10)


class Totals(sf.Operator[str, int, list[Any]]):
    """The sum of a key's values per ten seconds; a key of sum 0 is told of for ever, one of -1 fails."""

    every = sf.Every(TEN)
    total: sf.Value[int | None] = sf.state()
    seen: sf.MapOf[int, int] = sf.state()

    def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
        self.total.set((self.total.get() or 0) + value)

    def on_every(self, ctx: sf.Context[list[Any]]) -> None:
        total = self.total.get()
        assert total is not None, "without state it takes no part"
        ctx.emit([ctx.key, total, ctx.timestamp_ms // 1_000])
        if total < 0:
            self.seen.put(1, 1)
            raise ValueError("as was asked")
        if total:
            self.total.clear()


class ByTheClock(Totals):
    """The same by the clock, of a key's newest value."""

    every = sf.Every(TEN, time="processing")

    def on_every(self, ctx: sf.Context[list[Any]]) -> None:
        ctx.emit([ctx.key, self.total.get()])


def bench(operator: Any = Totals, on_error: Policy = sf.Fail(), stores: Any = None) -> StageBench:  # noqa: B008
    app = sf.App("site")
    source = app.stream(app.topic("in", key=str, value=int), co_partitioned=True)
    source.process(operator, name="sums", on_error=on_error).to(app.topic("out", key=str, value=sf.Json))
    return StageBench(app.topology().stages[0], stores)


def row(key: str, value: int, second: float) -> tuple[bytes, bytes, int]:
    return key.encode(), sf.Integer.encode(value), int(second * 1_000)


def out(stage: StageBench) -> list[Any]:
    return [sf.Json.decode(sent.value or b"") for sent in stage.context.sent.pop("out", [])]


def pending(stage: StageBench) -> int:
    return len(list(stage.context.stores["sums-timers"].scan()))


def test_ticks_are_the_same_for_all_keys_whenever_these_came() -> None:
    stage = bench()
    stage.feed(row("a", 1, 3), row("b", 2, 9.999), row("a", 4, 5), row("c", 5, 10))
    stage.advance(20_000)
    assert out(stage) == [["a", 5, 10], ["b", 2, 10], ["c", 5, 20]]
    assert pending(stage) == 0, "there is no state of any"


def test_a_key_with_state_is_called_for_each_tick_and_before_its_next_record() -> None:
    stage = bench()
    stage.feed(row("a", 0, 1), row("a", 7, 35), row("b", 9, 35))
    assert out(stage) == [["a", 0, 10], ["a", 0, 20], ["a", 0, 30]]
    stage.advance(40_000)
    assert sorted(out(stage)) == [["a", 7, 40], ["b", 9, 40]]


def test_a_round_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "TIMERS_PER_TURN", 30)
    stage = bench()
    stage.feed(*(row(f"k{number:03d}", 1, 1) for number in range(100)))
    turns = 0
    stage.context.watermark_ms = 10_000
    while stage.pipeline.advance(10_000):
        turns += 1
    assert turns == 3
    assert [each[0] for each in out(stage)] == [f"k{number:03d}" for number in range(100)]


def test_by_the_clock_missed_ticks_are_one_call() -> None:
    stage = bench(ByTheClock)
    clock = stage.context.clock
    first_ms = -clock.now_ms() % 10_000 or 10_000
    stage.feed(row("a", 1, 0), row("b", 2, 0))
    clock.advance(ms=first_ms)
    stage.advance(0)
    assert out(stage) == [["a", 1], ["b", 2]]
    stage.commit()
    clock.advance(seconds=95)
    stage.advance(0)
    assert out(stage) == [["a", 1], ["b", 2]]
    clock.advance(seconds=4)
    stage.advance(0)
    assert out(stage) == []
    clock.advance(seconds=1)
    stage.advance(0)
    assert out(stage) == [["a", 1], ["b", 2]]


def test_a_call_that_fails_is_undone_and_the_key_goes_on() -> None:
    stage = bench(on_error=sf.Skip())
    stage.feed(row("a", -1, 1), row("b", 3, 1))
    stage.advance(10_000)
    assert out(stage) == [["b", 3, 10]]
    assert list(stage.context.stores["sums-seen"].scan()) == []
    stage.feed(row("a", 6, 12))
    stage.advance(20_000)
    assert out(stage) == [["a", 5, 20]]
    assert stage.context.counters["skipped_records_total"] == 1


def test_a_record_that_is_let_go_brings_no_key_in() -> None:
    class Picky(Totals):
        def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
            super().on_record(value, ctx)
            if value == 13:
                raise ValueError("as was asked")

    stage = bench(Picky, on_error=sf.Skip())
    stage.feed(row("a", 13, 1))
    assert pending(stage) == 0


def test_a_record_without_event_time_follows_the_policy() -> None:
    stage = bench(on_error=sf.Skip())
    stage.feed((b"a", sf.Integer.encode(1), -1))
    assert stage.context.counters["skipped_records_total"] == 1


def test_own_timers_stand_beside_rounds() -> None:
    class Both(Totals):
        def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
            super().on_record(value, ctx)
            ctx.timer("own", after=timedelta(seconds=1))
            ctx.emit([timer.name for timer in ctx.timers()])

        def on_timer(self, name: str, ctx: sf.Context[list[Any]]) -> None:
            ctx.emit([name])

    stage = bench(Both)
    stage.feed(row("a", 2, 1), row("a", 2, 1))
    stage.advance(10_000)
    assert out(stage) == [["own"], ["own"], ["own"], ["a", 4, 10]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"every": sf.Every(TEN)}, "has every and no on_every"),
        ({"on_every": Totals.on_every}, "does not say how often"),
        ({"every": sf.Every(TEN), "on_every": Totals.on_every}, "no state, by which its keys are known"),
    ],
)
def test_half_of_it_is_refused(body: dict[str, Any], message: str) -> None:
    operator = type("Half", (sf.Operator,), {**body, "on_record": Totals.on_record})
    with pytest.raises(GraphError, match=message):
        bench(operator)


def test_no_interval_and_no_time_are_refused() -> None:
    with pytest.raises(GraphError, match="no interval"):
        sf.Every(timedelta(0))
    with pytest.raises(GraphError, match="'event' or 'processing'"):
        sf.Every(TEN, time="wall")  # type: ignore[arg-type]


def test_the_timer_of_rounds_cannot_be_set_by_hand() -> None:
    class Clash(Totals):
        def on_record(self, value: int, ctx: sf.Context[list[Any]]) -> None:
            ctx.timer("sf:every", after=TEN)

    stage = bench(Clash, on_error=sf.Skip())
    stage.feed(row("a", 2, 1))
    assert stage.context.counters["skipped_records_total"] == 1
