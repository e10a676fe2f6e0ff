"""Verbs without state, edges of a stage, and what becomes of records that fail."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.base import Codec
from stateflow.errors import DecodeError, DiskFull, EncodeError, GraphError, ProcessingError, StateflowError
from stateflow.lab.applications.stage import Sent, StageBench
from stateflow.operators.steps.error_policy import Policy


@dataclass
class Order:
    shop: str
    cents: int


def bench(
    build: Callable[[sf.Stream[bytes, Any], sf.Topic[Any, Any]], object],
    value: Any = sf.Integer,
    **source: Any,
) -> StageBench:
    """A stage that reads ``in`` and writes ``out``."""
    app = sf.App("test")
    stream_options = {name: source.pop(name) for name in ("on_error",) if name in source}
    stream = app.stream(app.topic("in", value=value, **source), **stream_options)
    build(stream, app.topic("out", value=sf.Json))
    return StageBench(app.topology().stages[0])


def rows(*values: Any, codec: Codec[Any] = sf.Integer) -> list[tuple[bytes, bytes, int]]:
    return [(b"k", codec.encode(value), 1000 + index) for index, value in enumerate(values)]


def values_of(stage: StageBench, topic: str = "out") -> list[Any]:
    return [None if s.value is None else sf.Json.decode(s.value) for s in stage.context.sent.get(topic, [])]


def headers_of(sent: Sent) -> dict[str, str]:
    return {name: text.decode() for name, text in sent.headers}


def reciprocal(value: int) -> float:
    return 12 / value


def test_map_filter_flat_map_keep_keys_and_times() -> None:
    def build(stream: Any, out: Any) -> None:
        stream.map(lambda v: v * 10).filter(lambda v: v != 20).flat_map(lambda v: [v] * (v // 10)).to(out)

    stage = bench(build)
    stage.feed(*rows(1, 2, 3))
    assert values_of(stage) == [10, 30, 30, 30]
    assert [sent.timestamp_ms for sent in stage.context.sent["out"]] == [1000, 1002, 1002, 1002]
    assert {sent.key for sent in stage.context.sent["out"]} == {b"k"}


def test_map_pairs_sees_the_key() -> None:
    stage = bench(lambda stream, out: stream.map_pairs(lambda k, v: [k, v]).to(out), key=sf.String)
    stage.feed(*rows(1), (None, sf.Integer.encode(2), 0))
    assert values_of(stage) == [["k", 1], [None, 2]]


def test_peek_shows_and_passes_on() -> None:
    seen: list[int] = []
    stage = bench(lambda stream, out: stream.peek(seen.append).to(out))
    stage.feed(*rows(1, 2))
    assert seen == values_of(stage) == [1, 2]


def test_branch_gives_each_record_to_one_arm_and_unused_arms_are_fine() -> None:
    def build(stream: Any, out: Any) -> None:
        _small, middle, rest = stream.branch(lambda v: v < 3, lambda v: v < 6)
        middle.map(lambda v: ["middle", v]).to(out)
        rest.map(lambda v: ["rest", v]).to(out)

    stage = bench(build)
    stage.feed(*rows(*range(9)))
    assert sorted(values_of(stage)) == [
        *([["middle", v] for v in (3, 4, 5)]),
        *([["rest", v] for v in (6, 7, 8)]),
    ]


def test_merge_gives_all_records_of_both() -> None:
    def build(stream: Any, out: Any) -> None:
        stream.filter(lambda v: v < 2).merge(stream.filter(lambda v: v > 3)).to(out)

    stage = bench(build)
    stage.feed(*rows(*range(6)))
    assert values_of(stage) == [0, 1, 4, 5]


def test_none_is_written_as_a_tombstone() -> None:
    stage = bench(lambda stream, out: stream.map(lambda v: None if v == 2 else v).to(out))
    stage.feed(*rows(1, 2))
    assert values_of(stage) == [1, None]


# --- policies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "policy_free"),
    [
        (lambda stream, policy: stream.map(reciprocal, on_error=policy), 2),
        (lambda stream, policy: stream.filter(reciprocal, on_error=policy), 2),
        (lambda stream, policy: stream.flat_map(lambda v: [reciprocal(v)], on_error=policy), 2),
        (lambda stream, policy: stream.peek(reciprocal, on_error=policy), 2),
        (lambda stream, policy: stream.branch(reciprocal, on_error=policy)[0], 2),
        (lambda stream, policy: stream.map_pairs(lambda _k, v: reciprocal(v), on_error=policy), 2),
    ],
)
def test_every_verb_follows_its_policy(verb: Callable[[Any, Policy], Any], policy_free: int) -> None:
    skipping = bench(lambda stream, out: verb(stream, sf.Skip()).to(out))
    skipping.feed(*rows(1, 0, 3, 0))
    assert len(values_of(skipping)) == policy_free
    assert skipping.context.counters["skipped_records_total"] == 2

    failing = bench(lambda stream, out: verb(stream, sf.Fail()).to(out))
    with pytest.raises(ProcessingError, match="ZeroDivisionError") as caught:
        failing.feed(*rows(1, 0, 3))
    assert caught.value.fields["offset"] == 1
    assert (caught.value.fields["topic"], caught.value.fields["partition"]) == ("in", 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_dead_letter_is_the_record_as_it_was_read_and_says_what_happened() -> None:
    def build(stream: Any, out: Any) -> None:
        stream.map(lambda v: v - 1).map(reciprocal, on_error=sf.DeadLetter("dead")).to(out)

    stage = bench(build)
    assert stage.stage.outputs == ("dead", "out")
    stage.feed(*rows(3, 1), headers=[(), (("own", b"kept"),)])
    assert values_of(stage) == [6]
    (dead,) = stage.context.sent["dead"]
    assert (dead.key, dead.value, dead.timestamp_ms) == (b"k", sf.Integer.encode(1), 1001)
    headers = headers_of(dead)
    assert headers.pop("sf-step").startswith("map-")
    assert headers == {
        "own": "kept",
        "sf-error-class": "ZeroDivisionError",
        "sf-error-message": "division by zero",
        "sf-topic": "in",
        "sf-partition": "0",
        "sf-offset": "1",
        "sf-attempts": "1",
    }
    assert stage.context.counters["dead_letters_total"] == 1


def test_undecodable_records_follow_the_policy_of_the_stream() -> None:
    bad = (b"k", b"short", 7)
    skipping = bench(lambda stream, out: stream.to(out), on_error=sf.Skip())
    skipping.feed(*rows(1), bad, *rows(2))
    assert values_of(skipping) == [1, 2]

    dead = bench(lambda stream, out: stream.to(out), on_error=sf.DeadLetter("dead"))
    dead.feed(bad)
    (letter,) = dead.context.sent["dead"]
    assert letter.value == b"short"
    assert headers_of(letter)["sf-error-class"] == "DecodeError"

    failing = bench(lambda stream, out: stream.to(out))
    with pytest.raises(DecodeError) as caught:
        failing.feed(*rows(1), bad)
    assert caught.value.fields["offset"] == 1


def test_values_that_cannot_be_encoded_follow_the_policy_of_the_sink() -> None:
    def build(policy: Policy) -> StageBench:
        return bench(
            lambda stream, out: stream.map(lambda v: object() if v == 2 else v).to(out, on_error=policy)
        )

    skipping = build(sf.Skip())
    skipping.feed(*rows(1, 2, 3))
    assert values_of(skipping) == [1, 3]
    with pytest.raises(EncodeError) as caught:
        build(sf.Fail()).feed(*rows(1, 2, 3))
    assert caught.value.fields["offset"] == 1


class Flaky:
    """Fails the first times that it is called for a value."""

    def __init__(self, failures: int) -> None:
        self.calls: list[int] = []
        self.failures = failures

    def __call__(self, value: int) -> int:
        self.calls.append(value)
        if value == 2 and self.calls.count(2) <= self.failures:
            raise OSError("not yet")
        return value


def test_retry_succeeds_in_place_and_calls_nothing_else_twice() -> None:
    flaky = Flaky(failures=2)
    stage = bench(lambda stream, out: stream.map(flaky, on_error=sf.Retry(3)).to(out))
    stage.feed(*rows(1, 2, 3))
    assert values_of(stage) == [1, 2, 3]
    assert flaky.calls == [1, 2, 2, 2, 3]
    assert stage.context.counters["retried_records_total"] == 2


def test_retry_gives_up_as_it_was_told() -> None:
    stage = bench(
        lambda stream, out: stream.map(Flaky(9), on_error=sf.Retry(2, then=sf.DeadLetter("dead"))).to(out)
    )
    stage.feed(*rows(1, 2, 3))
    assert values_of(stage) == [1, 3]
    assert headers_of(stage.context.sent["dead"][0])["sf-attempts"] == "3"
    with pytest.raises(ProcessingError, match="not yet"):
        bench(lambda stream, out: stream.map(Flaky(9), on_error=sf.Retry(2)).to(out)).feed(*rows(2))
    with pytest.raises(GraphError):
        sf.Retry(0)


def test_stop_iteration_is_a_failure_and_not_an_end() -> None:
    def stops(value: int) -> int:
        if value == 2:
            raise StopIteration
        return value

    stage = bench(lambda stream, out: stream.map(stops, on_error=sf.Skip()).to(out))
    stage.feed(*rows(1, 2, 3))
    assert values_of(stage) == [1, 3]


@pytest.mark.parametrize("policy", [sf.Skip(), sf.DeadLetter("dead"), sf.Retry(3)])
def test_no_policy_swallows_what_no_record_caused(policy: Policy) -> None:
    def full(_value: int) -> int:
        raise DiskFull("no space left.", action="make room.")

    stage = bench(lambda stream, out: stream.map(full, on_error=policy).to(out))
    with pytest.raises(StateflowError) as caught:
        stage.feed(*rows(1))
    assert type(caught.value) is DiskFull


# --- event time -----------------------------------------------------------------------------------------


def test_event_time_comes_from_the_value_and_is_told_to_the_host() -> None:
    stage = bench(lambda stream, out: stream.to(out), timestamp=lambda v: v * 100, on_error=sf.Skip())
    batch = stage.feed(*rows(5, -1, 7), (b"k", None, 99))
    assert [sent.timestamp_ms for sent in stage.context.sent["out"]] == [500, 700, 700]
    assert batch.timestamps_ms == [500, -1, 700, 700]


def test_event_time_as_a_datetime_needs_a_time_zone() -> None:
    when = datetime.datetime(2013, 1, 1, 5, tzinfo=datetime.UTC)
    stage = bench(lambda stream, out: stream.to(out), timestamp=lambda _v: when)
    stage.feed(*rows(1))
    assert stage.context.sent["out"][0].timestamp_ms == 1357016400000
    naive = bench(lambda stream, out: stream.to(out), timestamp=lambda _v: when.replace(tzinfo=None))
    with pytest.raises(ProcessingError, match="time zone"):
        naive.feed(*rows(1))


# --- re-keying ------------------------------------------------------------------------------------------


def annotated(value: int) -> Order:
    return Order("shop", value)


def several(value: int) -> Iterator[Order]:
    yield annotated(value)


@pytest.mark.parametrize(
    ("build", "value"),
    [
        (lambda stream: stream, sf.Integer.encode(5)),
        (lambda stream: stream.filter(bool).peek(print), sf.Integer.encode(5)),
        (lambda stream: stream.map(annotated), sf.MsgPack.encode({"shop": "shop", "cents": 5})),
        (lambda stream: stream.flat_map(several), sf.MsgPack.encode({"shop": "shop", "cents": 5})),
        (lambda stream: stream.map(lambda v: {"v": v}), sf.MsgPack.encode({"v": 5})),
        (
            lambda stream: stream.map(lambda v: Order("s", v), value=Order),
            sf.MsgPack.encode({"shop": "s", "cents": 5}),
        ),
    ],
)
def test_what_is_known_of_the_values_decides_how_they_travel(
    build: Callable[[Any], Any], value: bytes
) -> None:
    stage = bench(lambda stream, _out: build(stream).key_by(lambda _v: "key", name="by-key"))
    stage.feed(*rows(5))
    assert stage.context.rekeyed["by-key"] == [Sent(b"key", value, 1000)]


def test_an_undeclared_dataclass_is_refused_rather_than_changed() -> None:
    stage = bench(lambda stream, _out: stream.map(lambda v: Order("s", v)).key_by("shop", name="by-shop"))
    with pytest.raises(EncodeError, match="declare its type"):
        stage.feed(*rows(5))


def _keyed(pick: Any, key: Any, stream: Any, _out: Any) -> Any:
    return stream.map(annotated).key_by(pick, name="by", key=key)


def test_keys_by_field_by_annotation_and_by_declaration() -> None:
    def cents(order: Order) -> int:
        return order.cents

    for pick, key, expected in (
        ("shop", None, b"shop"),
        (cents, None, sf.Integer.encode(5)),
        (lambda order: order.cents, int, sf.Integer.encode(5)),
    ):
        stage = bench(partial(_keyed, pick, key))
        stage.feed(*rows(5))
        assert stage.context.rekeyed["by"][0].key == expected


def test_a_key_of_none_has_no_partition_and_follows_the_policy() -> None:
    def build(policy: Policy) -> StageBench:
        return bench(lambda stream, _out: stream.key_by(lambda _v: None, name="by", on_error=policy))

    with pytest.raises(ProcessingError, match="key is None"):
        build(sf.Fail()).feed(*rows(1))
    skipping = build(sf.Skip())
    skipping.feed(*rows(1))
    assert skipping.context.rekeyed == {}
    assert skipping.context.counters["skipped_records_total"] == 1


def test_a_topic_with_another_key_codec_gets_its_keys_rewritten() -> None:
    app = sf.App("test")
    stream = app.stream(app.topic("in", key=int, value=int))
    stream.to(app.topic("out", key=sf.JsonOf(int), value=int))
    stage = StageBench(app.topology().stages[0])
    stage.feed((sf.Integer.encode(12), sf.Integer.encode(1), 0), (None, sf.Integer.encode(2), 0))
    assert [sent.key for sent in stage.context.sent["out"]] == [b"12", None]


NAMED: dict[str, Callable[[Any, str], Any]] = {
    "map": lambda stream, name: stream.map(lambda value: value, name=name),
    "map_pairs": lambda stream, name: stream.map_pairs(lambda _key, value: value, name=name),
    "flat_map": lambda stream, name: stream.flat_map(lambda value: [value], name=name),
    "flat_map_pairs": lambda stream, name: stream.flat_map_pairs(lambda _key, value: [value], name=name),
    "filter": lambda stream, name: stream.filter(lambda _value: True, name=name),
    "filter_pairs": lambda stream, name: stream.filter_pairs(lambda _key, _value: True, name=name),
    "peek": lambda stream, name: stream.peek(lambda _value: None, name=name),
    "branch": lambda stream, name: stream.branch(lambda _value: True, name=name)[0],
    "map_records": lambda stream, name: stream.map_records(lambda record: record.value, name=name),
    "map_headers": lambda stream, name: stream.map_headers(lambda headers, _value: headers, name=name),
}


@pytest.mark.parametrize("verb", NAMED)
def test_a_step_is_called_what_it_is_named(verb: str) -> None:
    app = sf.App("test")
    stream, out = app.stream(app.topic("in", value=sf.Integer)), app.topic("out", value=sf.Json)
    NAMED[verb](stream, "in-cents").to(out)
    assert f"{verb} in-cents" in app.describe_text()
    with pytest.raises(GraphError, match="'in-cents' is used by two steps"):
        stream.map(lambda value: value, name="in-cents")
    with pytest.raises(GraphError, match="cannot be the name of a step"):
        stream.map(lambda value: value, name="in cents")


def test_a_failure_names_the_step_and_numbers_go_round_names() -> None:
    def build(stream: Any, out: Any) -> None:
        doubled = stream.map(lambda value: 1 // value, name="filter-2", on_error=sf.DeadLetter("dead"))
        doubled.filter(lambda _value: True).to(out)

    stage = bench(build)
    stage.feed(*rows(0, 1))
    (dead,) = stage.context.sent["dead"]
    assert headers_of(dead)["sf-step"] == "filter-2"
    assert values_of(stage) == [1]
