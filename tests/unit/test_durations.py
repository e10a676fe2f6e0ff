"""Durations are whole milliseconds, the unit of Kafka's timestamps: a fraction is refused, never cut."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.duration import declared_ms, whole_ms
from stateflow.errors import GraphError, ProcessingError
from stateflow.lab.applications.stage import StageBench
from stateflow.state.declare import declared_fields

FRACTION = timedelta(milliseconds=1, microseconds=500)
EXACT = timedelta(days=400, milliseconds=7)


def test_whole_milliseconds() -> None:
    assert whole_ms(EXACT) == declared_ms("the ttl", EXACT) == 400 * 86_400_000 + 7
    assert whole_ms(timedelta(milliseconds=-3)) == -3
    with pytest.raises(ValueError, match="a fraction of a millisecond"):
        whole_ms(FRACTION)


@pytest.mark.parametrize("not_a_span", [5, 1.5, "1m", None])
def test_what_is_no_duration_is_refused(not_a_span: Any) -> None:
    with pytest.raises(GraphError, match=r"the ttl.*timedelta"):
        declared_ms("the ttl", not_a_span)


class Forgetting:
    x: sf.Value[int] = sf.state(default=0, ttl=FRACTION)


class Remembering:
    x: sf.Versioned[int] = sf.state(history=FRACTION)


def new_stream() -> Any:
    app = sf.App("shop")
    return app.stream(app.topic("orders", key=str, value=int), co_partitioned=True)


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: sf.Tumbling(FRACTION), "size"),
        (lambda: sf.Tumbling(timedelta(microseconds=500)), "size"),
        (lambda: sf.Tumbling(EXACT, grace=FRACTION), "grace"),
        (lambda: new_stream().count(name="n", ttl=FRACTION), "ttl"),
        (lambda: new_stream().window(sf.Tumbling(EXACT)).count(name="n", ttl=FRACTION), "ttl"),
        (lambda: declared_fields(Forgetting, "op"), r"ttl of the state Forgetting\.x"),
        (lambda: declared_fields(Remembering, "op"), r"history of the state Remembering\.x"),
    ],
)
def test_the_graph_takes_whole_milliseconds(build: Callable[[], object], what: str) -> None:
    with pytest.raises(GraphError, match=f"{what}.*fraction of a millisecond"):
        build()


def of_a_timer(value: int, ctx: sf.Context[int]) -> None:
    ctx.timer("t", after=timedelta(microseconds=value))


OWN_TTL = sf.state(default=0, ttl_per_write=True)


def of_a_write(value: int, _ctx: sf.Context[int], seen: sf.Value[int] = OWN_TTL) -> None:
    seen.set(value, ttl=timedelta(microseconds=value))


def on_timer(_name: str, ctx: sf.Context[int]) -> None:
    ctx.emit(1)


@pytest.mark.parametrize("operator", [of_a_timer, of_a_write])
def test_a_duration_made_of_a_record_follows_the_policy(operator: Callable[..., None]) -> None:
    def bench(policy: Any) -> StageBench:
        app = sf.App("shop")
        stream = app.stream(app.topic("orders", key=str, value=int), co_partitioned=True)
        stream.process(operator, name="p", on_timer=on_timer, on_error=policy)
        (stage,) = app.topology().stages
        return StageBench(stage)

    skipping = bench(sf.Skip())
    skipping.feed((b"a", sf.Integer.encode(3_000), 5), (b"a", sf.Integer.encode(1_500), 5))
    assert skipping.context.counters["skipped_records_total"] == 1
    with pytest.raises(ProcessingError, match="fraction of a millisecond"):
        bench(sf.Fail()).feed((b"a", sf.Integer.encode(1_500), 5))
