"""Where records are written: a topic chosen for each, what a topic does not take, and where dead letters come from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError, ProcessingError, StateCorrupt
from stateflow.lab.applications.stage import Sent, StageBench
from stateflow.operators.steps.error_policy import Policy
from stateflow.operators.steps.origin import Place
from stateflow.record import record_bytes
from stateflow.testing import TestDriver


def bench(build: Callable[[Any, sf.App], object]) -> StageBench:
    app = sf.App("test")
    build(app.stream(app.topic("in", key=str, value=str)), app)
    return StageBench(app.topology().stages[0])


def topic(app: sf.App, name: str) -> sf.Topic[str, str]:
    return app.topic(name, key=str, value=str)


def row(value: str, key: bytes | None = b"k") -> tuple[bytes | None, bytes, int]:
    return key, value.encode(), 1000


def values(stage: StageBench, name: str) -> list[bytes | None]:
    return [sent.value for sent in stage.context.sent.get(name, [])]


def headers_of(sent: Sent) -> dict[str, bytes]:
    return dict(sent.headers)


# --- a topic for each record ----------------------------------------------------------------------------


def by_region(stream: Any, app: sf.App, on_error: Policy = sf.Fail()) -> None:  # noqa: B008
    eu, us = topic(app, "eu"), topic(app, "us")
    chosen = {"e": eu, "u": us, "x": topic(app, "elsewhere")}
    stream.to(lambda value: chosen[value[0]], among=(eu, us), on_error=on_error)


def test_a_topic_is_chosen_for_each_record() -> None:
    stage = bench(by_region)
    assert stage.stage.outputs == ("eu", "us"), "known before any record is there"
    stage.feed(*map(row, ("e1", "u1", "e2", "u2")), headers=[(), (("h", b"1"),), (), ()])
    assert values(stage, "eu") == [b"e1", b"e2"]
    assert values(stage, "us") == [b"u1", b"u2"]
    assert [sent.headers for sent in stage.context.sent["us"]] == [(("h", b"1"),), ()]


def test_a_record_without_a_value_has_nothing_to_choose_by() -> None:
    stage = bench(by_region)
    stage.feed(row("e1"), (b"k", None, 1000), row("u1"))
    assert (values(stage, "eu"), values(stage, "us")) == ([b"e1"], [b"u1"])
    assert stage.context.counters["empty_records_total"] == 1


def test_a_topic_that_was_not_declared_follows_the_policy() -> None:
    with pytest.raises(ProcessingError, match="'elsewhere' is not among eu, us"):
        bench(by_region).feed(row("x"))
    stage = bench(lambda stream, app: by_region(stream, app, sf.DeadLetter("dead")))
    stage.feed(*map(row, ("e", "x", "?", "u")))
    assert (values(stage, "eu"), values(stage, "us")) == ([b"e"], [b"u"])
    assert values(stage, "dead") == [b"x", b"?"]


def test_a_way_out_is_said_in_one_of_two_ways() -> None:
    for wrong in (
        lambda stream, app: stream.to(lambda value: topic(app, value)),
        lambda stream, app: stream.to(topic(app, "one"), among=(topic(app, "two"),)),
        lambda stream, app: stream.to(len, among=(topic(app, "one"), topic(app, "one"))),
    ):
        with pytest.raises(GraphError, match="are written to"):
            bench(wrong)


# --- records that are too large -------------------------------------------------------------------------

LIMIT = 300
FITS = "x" * (LIMIT - record_bytes(b"k", b""))


def test_a_record_that_its_topic_does_not_take_is_let_go_before_it_is_sent() -> None:
    stage = bench(lambda stream, app: stream.to(topic(app, "out"), on_error=sf.Skip()))
    stage.context.bytes_max["out"] = LIMIT
    stage.feed(*map(row, ("a", FITS, FITS + "x", "b")), row(FITS, None))
    assert values(stage, "out") == [b"a", FITS.encode(), b"b", FITS.encode()]
    assert stage.context.counters["skipped_records_total"] == 1


def test_headers_count() -> None:
    stage = bench(lambda stream, app: stream.to(topic(app, "out"), on_error=sf.Skip()))
    stage.context.bytes_max["out"] = LIMIT
    stage.feed(row(FITS), row("a"), row("b"), headers=[(("h", b""),), (("h", bytes(LIMIT)),), (("h", b"1"),)])
    assert values(stage, "out") == [b"b"]
    assert stage.context.sent["out"][0].headers == (("h", b"1"),)


def _to_out(policy: Policy, stream: Any, app: sf.App) -> None:
    stream.to(topic(app, "out"), on_error=policy)


def test_a_step_that_fails_leaves_it_to_the_broker() -> None:
    """Which goes by what it is sent, compressed."""
    for policy in (sf.Fail(), sf.Retry(2)):
        stage = bench(partial(_to_out, policy))
        stage.context.bytes_max["out"] = LIMIT
        stage.feed(row(FITS * 2))
        assert values(stage, "out") == [FITS.encode() * 2]


def test_its_dead_letter_is_cut_to_what_that_topic_takes() -> None:
    stage = bench(lambda stream, app: stream.to(topic(app, "out"), on_error=sf.DeadLetter("dead")))
    stage.context.bytes_max |= {"out": LIMIT, "dead": 600}
    large = "".join(chr(97 + number % 26) for number in range(700))
    stage.feed(row(large), row("b"), headers=[(("own", b"kept"),), ()])
    (letter,) = stage.context.sent["dead"]
    told = headers_of(letter)
    assert letter.value is not None
    assert large.encode().startswith(letter.value)
    assert 0 < len(letter.value) < len(large)
    assert record_bytes(letter.key, letter.value, letter.headers) == 600
    assert (told["sf-value-bytes"], told["own"], told["sf-offset"]) == (b"700", b"kept", b"0")
    assert b"is larger than the topic 'out' takes: 300" in told["sf-error-message"]


def test_a_dead_letter_whose_headers_are_too_large_loses_them() -> None:
    stage = bench(lambda stream, app: stream.to(topic(app, "out"), on_error=sf.DeadLetter("dead")))
    stage.context.bytes_max |= {"out": LIMIT, "dead": 800}
    stage.feed(row("value", b"k" * 2000), headers=[(("own", bytes(900)),)])
    (letter,) = stage.context.sent["dead"]
    assert record_bytes(letter.key, letter.value, letter.headers) <= 800
    assert "own" not in headers_of(letter)
    assert letter.key == b"k" * 200


def test_a_re_key_step_follows_its_policy_too() -> None:
    stage = bench(lambda stream, _app: stream.key_by(lambda value: value[0], name="by", on_error=sf.Skip()))
    stage.context.bytes_max["by"] = LIMIT
    stage.feed(row("a"), row("c" * 2 * LIMIT), row("b"))
    assert [sent.key for sent in stage.context.rekeyed["by"]] == [b"a", b"b"]
    assert stage.context.counters["skipped_records_total"] == 1


def test_the_limit_is_the_topics_own_and_the_transaction_goes_on() -> None:
    app = sf.App("limited")
    source, out = topic(app, "in"), topic(app, "out")
    app.stream(source).to(out, on_error=sf.DeadLetter("dead"))
    driver = TestDriver(app, partitions=1)
    driver.cluster.alter_topic_config("out", {"max.message.bytes": str(LIMIT)})
    driver.send(source, "a", "y" * LIMIT, "b", key="k")
    assert [each.value for each in driver.output(out)] == ["a", "b"]
    (letter,) = driver.output(topic(app, "dead"))
    assert letter.value == "y" * LIMIT


# --- where dead letters come from -----------------------------------------------------------------------


def fail(value: str) -> str:
    if "!" in value:
        raise ValueError(value)
    return value


def behind(dead: bool) -> tuple[sf.App, sf.Topic[str, str], sf.Topic[str, str]]:
    app = sf.App("letters")
    source, out = topic(app, "in"), topic(app, "out")
    policy: Policy = sf.DeadLetter("dead") if dead else sf.Skip()
    twice = (
        app.stream(source)
        .key_by(lambda value: value[0], name="first", key=str)
        .map(str.upper, value=str)
        .key_by(lambda value: value[1], name="second", key=str)
    )
    twice.map(fail, on_error=policy).to(out)
    return app, source, out


def test_a_dead_letter_behind_re_key_steps_names_the_original_record() -> None:
    app, source, _ = behind(dead=True)
    driver = TestDriver(app, partitions=2)
    driver.send(source, "ab", key="other")
    driver.send(source, "cd!", "cd!", "cd!", key="original", headers={"trace": "t"})
    driver.crash(disk_lost=True)
    driver.restore()
    letters = driver.output(topic(app, "dead"))
    told = [dict(letter.headers) for letter in letters]
    assert [(each["sf-topic"], each["sf-key"], each["trace"]) for each in told] == [
        (b"in", b"original", b"t")
    ] * 3
    sent = [record for record in driver.output(source) if record.value == "cd!"]
    assert sorted((int(each["sf-partition"]), int(each["sf-offset"])) for each in told) == [
        (record.partition, record.offset) for record in sent
    ]
    assert all(each["sf-read"].startswith(b"letters-second-repartition[") for each in told)
    assert {letter.value for letter in letters} == {"CD!"}
    assert all(name not in each for each in told for name in ("sf-origin", "sf-mark", "sf-cut"))


def test_the_origin_travels_only_where_a_dead_letter_may_need_it() -> None:
    for dead, carried in ((True, 1), (False, 0)):
        app, *_ = behind(dead=dead)
        first, second, _third = map(StageBench, app.topology().stages)
        first.feed(row("ab"))
        (sent,) = first.context.rekeyed["first"]
        assert len(sent.headers) == carried
        second.feed((sent.key, sent.value, sent.timestamp_ms), headers=[sent.headers], topic="first")
        (again,) = second.context.rekeyed["second"]
        assert again.headers == sent.headers


def test_a_result_of_time_has_no_origin() -> None:
    app = sf.App("letters")
    source, out = topic(app, "in"), app.topic("out", key=int, value=str)
    windows = app.stream(source, co_partitioned=True).window(
        sf.Tumbling(timedelta(seconds=1)), emit="on_close"
    )
    texts = windows.count(name="n").map(lambda count: f"{count}!", value=str)
    texts.key_by(len, name="by", key=int).map(fail, on_error=sf.DeadLetter("dead")).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(source, "a", key="k", timestamp_ms=1000)
    driver.end_input()
    (letter,) = driver.output(topic(app, "dead"))
    told = dict(letter.headers)
    assert told["sf-topic"] == b"letters-by-repartition"
    assert "sf-key" not in told
    assert "sf-read" not in told


@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_a_place_is_written_and_read(key: bytes | None) -> None:
    place = Place("orders", 3, 1 << 40, key)
    assert Place.decode(place.encode()) == place


@pytest.mark.parametrize("data", [b"", b"123", Place("t", 1, 2, b"k").encode()[:14], b"\x00" * 14 + b"z"])
def test_what_is_no_place_is_refused(data: bytes) -> None:
    with pytest.raises(StateCorrupt):
        Place.decode(data)
