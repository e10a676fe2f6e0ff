"""Stateful operators as functions: states as parameters, timers as a second function."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.lab.applications.stage import StageBench


def count(
    value: str,
    ctx: sf.Context[str],
    total: sf.Value[int] = sf.state(default=0),  # noqa: B008
    words: sf.ListOf[str] = sf.state(),  # noqa: B008
) -> None:
    total.set(total.get() + 1)
    words.append(value)
    ctx.timer("idle", after=timedelta(seconds=10))


def idle(name: str, ctx: sf.Context[str], words: sf.ListOf[str]) -> None:
    ctx.emit(f"{name} {ctx.key}: {' '.join(words)}")
    words.clear()


def bench(function: Any, on_timer: Any = None) -> StageBench:
    app = sf.App("site")
    clicks = app.stream(app.topic("clicks", key=str, value=str), co_partitioned=True)
    clicks.process(function, name="words", on_timer=on_timer).to(app.topic("out", key=str, value=str))
    return StageBench(app.topology().stages[0])


def test_a_function_keeps_state_and_sets_timers() -> None:
    stage = bench(count, idle)
    assert [store.name for store in stage.stage.stores] == ["words-total", "words-words", "words-timers"]
    stage.feed((b"a", b"x", 0), (b"b", b"y", 0), (b"a", b"z", 5_000))
    stage.commit()
    stage = stage.restarted()
    stage.advance(15_000)
    assert [sent.value for sent in stage.context.sent["out"]] == [b"idle b: y", b"idle a: x z"]


def no_context(value: str) -> None: ...


def no_state(value: str, ctx: sf.Context[str], more: int = 5) -> None: ...


def other_state(name: str, ctx: sf.Context[str], missing: sf.Value[int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "on_timer", "why"),
    [
        (no_context, None, "fewer than two"),
        (no_state, None, "'more' that is no state"),
        (count, other_state, "names 'missing'"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(function: Any, on_timer: Any, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        bench(function, on_timer)


def test_a_class_has_its_own_on_timer() -> None:
    class Own(sf.Operator[str, str, str]):
        def on_record(self, value: str, ctx: sf.Context[str]) -> None: ...

    with pytest.raises(GraphError, match="is a class and was given on_timer"):
        bench(Own, idle)


def test_timers_of_a_function_without_on_timer_are_refused() -> None:
    stage = bench(count)
    with pytest.raises(GraphError, match="no on_timer"):
        stage.feed((b"a", b"x", 0))
