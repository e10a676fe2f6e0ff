"""What a timer carries, and a key's list of timers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import EncodeError, GraphError, ProcessingError
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.steps.error_policy import Policy

SECOND = timedelta(seconds=1)


class Reminders(sf.Operator[str, Any, Any]):
    """Sets a timer for each record that says of what, tells what is pending, and what was due."""

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        assert ctx.payload is None, "a record has none, also behind a timer"
        if value == "list":
            ctx.emit([list(timer) for timer in ctx.timers()])
        elif value["seconds"] is None:
            ctx.cancel_timer(value["name"])
        else:
            ctx.timer(
                value["name"],
                after=value["seconds"] * SECOND,
                payload=value.get("of"),
                time=value.get("time", "event"),
            )

    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        ctx.emit([name, ctx.payload])


def bench(on_error: Policy = sf.Fail()) -> StageBench:  # noqa: B008
    app = sf.App("site")
    source = app.stream(app.topic("in", key=str, value=sf.Json), co_partitioned=True)
    source.process(Reminders, name="remind", on_error=on_error).to(app.topic("out", key=str, value=sf.Json))
    return StageBench(app.topology().stages[0])


def row(key: str, second: int, value: Any) -> tuple[bytes, bytes, int]:
    return key.encode(), sf.Json.encode(value), second * 1_000


def remind(key: str, second: int, name: str, after: int | None, **more: Any) -> tuple[bytes, bytes, int]:
    return row(key, second, {"name": name, "seconds": after, **more})


def out(stage: StageBench) -> list[Any]:
    return [sf.Json.decode(sent.value or b"") for sent in stage.context.sent.pop("out", [])]


@pytest.mark.parametrize("payload", [{"order": 7, "lines": [1, 2]}, ["a"], "text", 3, 2.5, False, 0, "", {}])
def test_a_timer_is_given_back_what_it_was_set_with(payload: Any) -> None:
    stage = bench()
    stage.feed(remind("a", 0, "x", 5, of=payload), remind("a", 0, "plain", 6))
    stage.advance(10_000)
    assert out(stage) == [["x", payload], ["plain", None]]


def test_set_again_for_the_same_time_it_carries_the_newer_payload() -> None:
    stage = bench()
    stage.feed(remind("a", 0, "x", 5, of=1), remind("a", 0, "x", 5, of=2), remind("b", 0, "x", 5, of=1))
    stage.feed(remind("b", 0, "x", 5))
    stage.advance(10_000)
    assert out(stage) == [["x", 2], ["x", None]]


def test_a_key_lists_its_own_timers_the_soonest_first() -> None:
    stage = bench()
    stage.feed(
        remind("a", 0, "z", 9, of={"n": 1}), remind("a", 0, "y", 9), remind("a", 1, "x", 2, time="processing")
    )
    stage.feed(
        remind("ab", 0, "other", 1),
        remind("a", 1, "gone", 2),
        remind("a", 1, "gone", None),
        row("a", 1, "list"),
    )
    now_ms = stage.context.clock.now_ms()
    expected = [
        ["y", 9_000, "event", None],
        ["z", 9_000, "event", {"n": 1}],
        ["x", now_ms + 2_000, "processing", None],
    ]
    assert out(stage) == [sorted(expected, key=lambda timer: (timer[1], timer[0]))]


def test_records_behind_a_timer_have_no_payload() -> None:
    stage = bench()
    stage.feed(remind("a", 0, "x", 5, of=1), row("a", 9, "list"))
    assert out(stage) == [["x", 1], []]


@pytest.mark.parametrize("payload", ["x" * 65_536, ["y" * 70_000]])
def test_a_payload_that_is_too_large_is_the_records_fault(payload: Any) -> None:
    stage = bench(sf.Skip())
    stage.feed(remind("a", 0, "x", 5, of=payload))
    assert stage.context.counters["skipped_records_total"] == 1
    with pytest.raises(ProcessingError, match="a timer's payload has at most 65536 bytes"):
        bench().feed(remind("a", 0, "x", 5, of=payload))


class Wrong(sf.Operator[str, Any, Any]):
    """Gives a timer what would come back as something else; lists without having any."""

    def on_record(self, value: Any, ctx: sf.Context[Any]) -> None:
        if value == "list":
            ctx.timers()
        ctx.timer("x", after=SECOND, payload=(1, 2))


class WrongWithTimers(Wrong):
    def on_timer(self, name: str, ctx: sf.Context[Any]) -> None:
        raise AssertionError(name)


def feed_to(operator: type[Wrong], value: str) -> None:
    app = sf.App("site")
    source = app.stream(app.topic("in", key=str, value=sf.Json), co_partitioned=True)
    source.process(operator, name="remind")
    StageBench(app.topology().stages[0]).feed(row("a", 0, value))


def test_what_cannot_be_a_payload_is_told() -> None:
    with pytest.raises(EncodeError, match="a tuple would not come back as one"):
        feed_to(WrongWithTimers, "set")


def test_an_operator_without_on_timer_has_no_timers() -> None:
    with pytest.raises(GraphError, match="has no on_timer"):
        feed_to(Wrong, "list")
