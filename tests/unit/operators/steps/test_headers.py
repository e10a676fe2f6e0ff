"""Headers travel with records, are read, set and written; those of stateflow's own are never seen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.changelog.barrier_id import barrier_header
from stateflow.changelog.format import BARRIER_HEADER, MARK_HEADER, ORIGIN_HEADER
from stateflow.errors import ProcessingError
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.classes.functional import operator_of
from stateflow.operators.classes.operator import OperatorClass
from stateflow.operators.steps.headers import headers_of, own_headers, packed, unpacked
from stateflow.operators.steps.marks import mark_headers
from stateflow.record import Headers, TopicPartition
from stateflow.testing import TestDriver

TRACE = (("trace", b"t1"),)
BOTH = (("trace", b"t1"), ("trace", b"t2"))


def bench(build: Callable[[Any, Any], object], **source: Any) -> StageBench:
    app = sf.App("test")
    stream = app.stream(app.topic("in", key=str, value=int, **source), co_partitioned=True)
    build(stream, app.topic("out", key=str, value=sf.Json))
    return StageBench(app.topology().stages[0])


def row(value: int, at_ms: int = 1000) -> tuple[bytes, bytes, int]:
    return b"k", sf.Integer.encode(value), at_ms


def values_of(stage: StageBench) -> list[Any]:
    return [sf.Json.decode(sent.value or b"null") for sent in stage.context.sent["out"]]


def sent_headers(stage: StageBench, topic: str = "out") -> list[Headers]:
    return [sent.headers for sent in stage.context.sent[topic]]


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream,
        lambda stream: stream.map(lambda value: value),
        lambda stream: stream.map_pairs(lambda _, value: value),
        lambda stream: stream.map_records(lambda record: record.value),
        lambda stream: stream.flat_map(lambda value: [value]),
        lambda stream: stream.flat_map_pairs(lambda _, value: [value]),
        lambda stream: stream.filter(bool),
        lambda stream: stream.filter_pairs(lambda _, value: value),
        lambda stream: stream.peek(bool),
        lambda stream: stream.branch(lambda value: value == 9)[1],
        lambda stream: stream.branch(lambda value: value == 9)[0].merge(stream),
        lambda stream: stream.dedup(name="d", within=timedelta(hours=1)),
        lambda stream: stream.map(lambda value: value * value // value, on_error=sf.Skip()),
        lambda stream: stream.process(Passing, name="p"),
        lambda stream: stream.process(Passing, name="p", on_error=sf.Skip()),
    ],
)
def test_headers_stay_with_their_records(build: Callable[[Any], Any]) -> None:
    stage = bench(lambda stream, out: build(stream).to(out))
    stage.feed(row(1), row(0), row(2), row(3), headers=[TRACE, BOTH, (), BOTH])
    told = {sent.value: sent.headers for sent in stage.context.sent["out"]}
    assert [told[sf.Json.encode(value)] for value in (1, 2, 3)] == [TRACE, (), BOTH]


class Passing(sf.Operator[str, int, int]):
    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        ctx.emit(value)


def test_where_no_record_has_headers_none_are_made() -> None:
    stage = bench(lambda stream, out: stream.process(Passing, name="p").map(abs).to(out))
    batch = stage.feed(row(1), row(2))
    assert batch.headers == []
    assert sent_headers(stage) == [(), ()]


def test_flat_map_gives_each_result_the_headers_of_its_record() -> None:
    stage = bench(lambda stream, out: stream.flat_map(lambda value: [value] * value).to(out))
    stage.feed(row(2), row(0), row(1), headers=[TRACE, (), BOTH])
    assert sent_headers(stage) == [TRACE, TRACE, BOTH]


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.count(name="n"),
        lambda stream: stream.window(sf.Tumbling(timedelta(seconds=1))).count(name="n"),
        lambda stream: stream.to_table(name="t").to_stream(),
        lambda stream: stream.to_table(name="t", history=timedelta(hours=1)).to_stream(),
        lambda stream: stream.join(
            stream.map(abs), max, name="j", within=sf.Within(timedelta(seconds=1)), value=int
        ),
    ],
)
def test_what_stands_for_more_than_a_record_has_none(build: Callable[[Any], Any]) -> None:
    stage = bench(lambda stream, out: build(stream).to(out))
    stage.feed(row(1), headers=[TRACE])
    stage.advance(100_000)
    assert {*sent_headers(stage)} == {()}


def test_a_record_that_waits_in_state_keeps_its_headers() -> None:
    stage = bench(lambda stream, out: stream.in_order(name="o").to(out))
    stage.feed(row(3, 1_300), row(2, 1_200), row(1, 1_200), headers=[TRACE, (), BOTH])
    stage.feed(row(4, 1_300))
    stage.commit()
    stage = stage.restarted()
    stage.advance(100_000)
    assert values_of(stage) == [3, 4]
    assert sent_headers(stage) == [TRACE, ()]


def test_records_of_one_time_wait_in_the_order_in_which_they_came() -> None:
    stage = bench(lambda stream, out: stream.in_order(name="o").to(out))
    headers = [(("z", b""),), (), (("a", bytes(300)), ("ä", b"\x00")), (("z", b""),)]
    stage.feed(*[row(number, 1_200) for number in range(4)], headers=headers)
    stage.advance(100_000)
    assert values_of(stage) == [0, 1, 2, 3]
    assert sent_headers(stage) == headers
    assert all(unpacked(packed(each)) == each for each in headers)


def test_headers_are_read_in_an_operator_and_in_a_map_of_records() -> None:
    def tell(record: sf.StreamRecord[str, int]) -> list[Any]:
        (_, trace), *_ = record.headers or (("", b"none"),)
        assert record.source == TopicPartition("in", 0)
        return [record.key, record.value, record.timestamp_ms, record.offset, trace.decode()]

    class Reading(sf.Operator[str, list[Any], list[Any]]):
        def on_record(self, value: list[Any], ctx: sf.Context[list[Any], str]) -> None:
            newest, missing = ctx.header("trace"), ctx.header("missing")
            ctx.emit([*value, ctx.key, len(ctx.headers), newest and newest.decode(), missing])

    stage = bench(lambda stream, out: stream.map_records(tell).process(Reading, name="r").to(out))
    stage.feed(row(1), row(2, 1001), headers=[BOTH, ()])
    assert values_of(stage) == [
        ["k", 1, 1000, 0, "t1", "k", 2, "t2", None],
        ["k", 2, 1001, 1, "none", "k", 0, None, None],
    ]


class Setting(sf.Operator[str, int, int]):
    """Answers each value under headers that it chooses, and tells it again by a timer."""

    last: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        ctx.emit(value, headers=[("chosen", str(value)), *ctx.headers])
        ctx.emit(value, headers=())
        ctx.timer("again", after=timedelta(milliseconds=1))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:
        ctx.emit(-1 - len(ctx.headers))


@pytest.mark.parametrize("policy", [sf.Fail(), sf.Skip()])
def test_an_operator_chooses_the_headers_and_a_timer_has_none(policy: Any) -> None:
    stage = bench(lambda stream, out: stream.process(Setting, name="s", on_error=policy).to(out))
    stage.feed(row(1), row(2, 2000), row(3, 2000), headers=[TRACE, BOTH, TRACE])
    values = values_of(stage)
    assert values == [1, 1, -1, 2, 2, 3, 3], "the timer of the first record fires before the second"
    assert sent_headers(stage) == [
        (("chosen", b"1"), ("trace", b"t1")),
        (),
        (),
        (("chosen", b"2"), *BOTH),
        (),
        (("chosen", b"3"), ("trace", b"t1")),
        (),
    ]
    stage.advance(100_000)
    assert sent_headers(stage)[-1] == ()


def test_headers_are_set_in_a_stream() -> None:
    def shop(headers: Headers, value: int) -> Any:
        if value == 3:
            return {}
        return [*headers, ("value", str(value))] if value else {"sf-mark": b""}

    def build(stream: Any, out: Any) -> None:
        stream.map_headers(shop, on_error=sf.DeadLetter("dead")).to(out)

    stage = bench(build)
    stage.feed(row(1), row(0), row(2), row(3), headers=[TRACE, TRACE, (), TRACE])
    assert sent_headers(stage) == [(*TRACE, ("value", b"1")), (("value", b"2"),), ()]
    (dead,) = stage.context.sent["dead"]
    told = dict(dead.headers)
    assert b"stateflow's own" in told["sf-error-message"]
    assert told["trace"] == b"t1"


@pytest.mark.parametrize(
    "wrong", [{"": b""}, {"n": 5}, [(1, b"")], {BARRIER_HEADER: b""}, {ORIGIN_HEADER: b""}]
)
def test_what_cannot_be_a_header_is_refused(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        headers_of(wrong)
    with pytest.raises(ProcessingError, match="header"):
        bench(lambda stream, out: stream.map_headers(lambda _h, _v: wrong).to(out)).feed(row(1))


def test_names_of_our_own_are_never_seen() -> None:
    """Not even where another program writes them to a source topic; a header without a value is empty."""
    foreign: Any = ((MARK_HEADER, b"12345678"), ("null", None), (ORIGIN_HEADER, b"x"))
    assert own_headers(foreign) == (("null", b""),)
    stage = bench(lambda stream, out: stream.to(out))
    stage.feed(row(1), row(2), headers=[foreign, ((BARRIER_HEADER, b"1"),)])
    assert sent_headers(stage) == [(("null", b""),), ()]


def test_they_pass_a_re_key_step_beside_our_own() -> None:
    app = sf.App("test")
    out = app.topic("out", key=str, value=int)
    stream = app.stream(app.topic("in", key=str, value=int))
    stream.key_by_pairs(lambda key, value: f"{key}{value}", name="again", key=str).to(out)
    before, behind = map(StageBench, app.topology().stages)
    before.feed(row(1, 50), row(2, 40), headers=[TRACE, BOTH])
    sent = before.context.rekeyed["again"]
    assert [each.key for each in sent] == [b"k1", b"k2"]
    assert sent[0].headers == TRACE
    assert sent[1].headers == (*mark_headers([50], [40])[0], *BOTH)
    behind_barrier = [(*barrier_header(3), *each.headers) for each in sent]
    behind.feed(*[(each.key, each.value, each.timestamp_ms) for each in sent], headers=behind_barrier)
    assert sent_headers(behind) == [TRACE, BOTH]


class Telling(sf.Operator[str, int, list[Any]]):
    """Emits what it has kept and what the record brings: state and headers together."""

    total: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: int, ctx: sf.Context[list[Any], str]) -> None:
        self.total.set(self.total.get() + value)
        trace = ctx.header("trace")
        ctx.emit([ctx.key, self.total.get(), trace and trace.decode()])


def test_they_come_through_a_crash_and_a_repartition() -> None:
    app = sf.App("traced")
    source, out = app.topic("in", key=str, value=int), app.topic("out", key=str, value=sf.Json)
    keyed = app.stream(source).key_by(lambda value: f"g{value % 2}", name="by-parity", key=str)
    keyed.process(Telling, name="told").to(out)
    driver = TestDriver(app)
    driver.send(source, 1, key="a", headers={"trace": "t1"})
    driver.crash(disk_lost=True)
    driver.restore()
    driver.send(source, 3, key="a", headers=[("trace", "old"), ("trace", "t2")], timestamp_ms=5)
    driver.repartition(3)
    driver.send(source, 5, key="b")
    records = sorted(driver.output(out), key=lambda record: record.value[1])
    assert [record.value for record in records] == [["g1", 1, "t1"], ["g1", 4, "t2"], ["g1", 9, None]]
    assert [record.headers for record in records] == [
        (("trace", b"t1"),),
        (("trace", b"old"), ("trace", b"t2")),
        (),
    ]


def test_a_join_with_a_table_keeps_those_of_the_stream() -> None:
    app = sf.App("joined")
    left, right = (app.topic(name, key=str, value=int) for name in ("left", "right"))
    out = app.topic("out", key=str, value=int)
    table = app.table(right, name="rates")
    app.stream(left).join(table, lambda value, rate: value * rate, name="j", value=int).to(out)
    driver = TestDriver(app)
    driver.send(right, 3, key="k", headers={"of": "table"})
    driver.send(left, 2, key="k", headers={"of": "stream"})
    (record,) = driver.output(out)
    assert (record.value, record.headers) == (6, (("of", b"stream"),))


def test_several_inputs_are_given_the_headers_of_their_records() -> None:
    app = sf.App("several")
    left, right = (app.topic(name, key=str, value=int) for name in ("left", "right"))
    out = app.topic("out", key=str, value=int)

    class Match(sf.Operator[str, int, int]):
        def on_left(self, value: int, ctx: sf.Context[int]) -> None:
            ctx.emit(value)

        def on_right(self, value: int, ctx: sf.Context[int]) -> None:
            ctx.emit(-value, headers={"was": ctx.header("side") or b"-"})

    streams = app.stream(left), app.stream(right)
    app.process(Match, sf.port(streams[0], Match.on_left), sf.port(streams[1], Match.on_right), name="m").to(
        out
    )
    driver = TestDriver(app)
    driver.send(left, 1, key="k", headers={"side": "left"})
    driver.send(right, 2, key="k", headers={"side": "right"})
    assert {record.value: record.headers for record in driver.output(out)} == {
        1: (("side", b"left"),),
        -2: (("was", b"right"),),
    }


def test_a_function_may_say_of_which_type_its_key_is() -> None:
    def shown(value: int, ctx: sf.Context[str, str]) -> None:
        ctx.emit(ctx.key.upper())

    assert OperatorClass("shown", operator_of(shown)).output_type is str
    stage = bench(lambda stream, out: stream.process(shown, name="shown").to(out))
    stage.feed(row(1))
    assert values_of(stage) == ["K"]
