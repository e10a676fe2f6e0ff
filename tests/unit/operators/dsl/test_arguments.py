"""Words and policies that the graph API takes: any other is refused where it is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import ConfigError, GraphError
from stateflow.testing import TestDriver

MINUTES = sf.Tumbling(timedelta(minutes=1))


def new_stream() -> tuple[sf.App, Any, Any]:
    app = sf.App("shop")
    orders, totals = app.topic("orders", key=str, value=int), app.topic("totals", key=str, value=int)
    return app, app.stream(orders, co_partitioned=True), totals


@pytest.mark.parametrize("emit", ["on-close", "final", "ON_CLOSE", None, True, ["on_close"]])
def test_an_unknown_emit_is_refused_with_the_words_there_are(emit: Any) -> None:
    _, stream, _ = new_stream()
    with pytest.raises(GraphError, match=r"emit.*'on_update' or 'on_close'"):
        stream.window(MINUTES, emit=emit)


@pytest.mark.parametrize("late", [sf.Fail(), sf.Retry(1), "skip", None, sf.Skip])
def test_a_window_skips_late_records_or_dead_letters_them(late: Any) -> None:
    _, stream, _ = new_stream()
    with pytest.raises(GraphError, match=r"late.*Skip\(\) or DeadLetter\(topic\)"):
        stream.window(MINUTES, late=late)


def test_a_window_is_one_and_its_changelog_is_eventual() -> None:
    _, stream, _ = new_stream()
    with pytest.raises(GraphError, match=r"sf\.Tumbling"):
        stream.window(timedelta(minutes=1))
    with pytest.raises(GraphError, match=r"sf\.Eventual"):
        stream.window(MINUTES, changelog="eventual")


def process(_value: int, _ctx: sf.Context[int]) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    "build",
    [
        lambda app, stream, totals: app.stream(app.topic("more"), on_error="skip"),
        lambda app, stream, totals: stream.map(abs, on_error="skip"),
        lambda app, stream, totals: stream.branch(bool, on_error=sf.Skip),
        lambda app, stream, totals: stream.key_by(str, name="by", on_error=None),
        lambda app, stream, totals: stream.to(totals, on_error="dead-letters"),
        lambda app, stream, totals: stream.count(name="n", on_error="skip"),
        lambda app, stream, totals: stream.window(MINUTES).count(name="n", on_error="skip"),
        lambda app, stream, totals: stream.process(process, name="p", on_error="skip"),
    ],
)
def test_an_unknown_policy_is_refused_by_every_verb(build: Callable[[Any, Any, Any], object]) -> None:
    with pytest.raises(GraphError, match=r"on_error.*Fail\(\), Skip\(\), DeadLetter\(topic\) or Retry"):
        build(*new_stream())


def test_policies_are_made_of_what_they_need() -> None:
    app, _, _ = new_stream()
    with pytest.raises(GraphError, match="its name"):
        sf.DeadLetter(app.topics[0])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"then.*Fail\(\), Skip\(\) or DeadLetter"):
        sf.Retry(2, then="skip")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="then"):
        sf.Retry(2, then=sf.Retry(2))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="never retries"):
        sf.Retry(0)


def test_an_unknown_word_for_a_timers_time_stops_the_task_under_any_policy() -> None:
    """It is the code that is wrong and not the record: letting records go would hide it."""
    app, stream, totals = new_stream()

    def on_record(value: int, ctx: sf.Context[int]) -> None:
        ctx.timer("t", after=timedelta(seconds=value), time="lunch")  # type: ignore[arg-type]

    def on_timer(_name: str, _ctx: sf.Context[int]) -> None:
        """Never called."""

    stream.process(on_record, name="p", on_timer=on_timer, on_error=sf.Skip()).to(totals)
    driver = TestDriver(app, partitions=1)
    with pytest.raises(GraphError, match=r"'event' or 'processing'.*'lunch'"):
        driver.send(app.topics[0], 1, key="a")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("guarantee", "at-least-once, exactly-once"),
        ("commit_mode", "standard, paranoid"),
        ("image_mode", "full, delta, continuous"),
    ],
)
def test_a_setting_of_few_words_names_them(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sf.App("shop", **{setting: "maybe"})  # type: ignore[arg-type]


def test_numbers_have_the_widths_that_kafka_writes() -> None:
    codecs: list[Any] = [type(sf.Integer), type(sf.Float)]
    for codec in codecs:
        with pytest.raises(GraphError, match="32 or 64"):
            codec(16)
