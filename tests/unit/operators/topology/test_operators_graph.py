"""Splitting the graph into stages, and refusing graphs that cannot run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.operators.topology.topology import Input


def new_app() -> tuple[sf.App, sf.Topic[str, int], sf.Topic[str, int]]:
    app = sf.App("shop")
    return app, app.topic("orders", key=str, value=int), app.topic("totals", key=str, value=int)


def test_the_wordcount_of_the_readme() -> None:
    app = sf.App("wordcount")
    lines, counts = app.topic("lines", value=sf.String), app.topic("counts", key=sf.String, value=sf.Json)
    words = app.stream(lines).flat_map(str.split).key_by(str.lower, name="by-word")
    per_minute = words.window(sf.Tumbling(timedelta(minutes=1), grace=timedelta(seconds=10)))
    per_minute.count(name="per-minute", ttl=timedelta(hours=1)).to(
        counts, on_error=sf.DeadLetter("wordcount-dlq")
    )

    first, second = app.topology().stages
    assert (first.name, first.inputs, first.is_rekeyed) == ("lines", (Input("lines"),), False)
    assert (first.rekeys, first.stores, first.outputs) == (("by-word",), (), ())
    assert (second.name, second.inputs, second.is_rekeyed) == ("by-word", (Input("by-word", "lines"),), True)
    assert second.outputs == ("counts", "wordcount-dlq")
    (store,) = second.stores
    assert (store.name, store.stage, store.kind, store.layout) == (
        "per-minute",
        "by-word",
        "window",
        "window",
    )
    assert (store.window_ms, store.grace_ms, store.retention_ms) == (60_000, 10_000, 3_600_000)


def test_steps_that_read_one_topic_share_a_stage() -> None:
    app, orders, totals = new_app()
    app.stream(orders).filter(bool).to(totals)
    app.stream(orders).key_by(str, name="by-text").count(name="n").to(totals)
    app.stream(app.topic("other", key=str, value=int)).to(totals)
    assert [(stage.name, stage.rekeys) for stage in app.topology().stages] == [
        ("orders", ("by-text",)),
        ("other", ()),
        ("by-text", ()),
    ]


def test_topics_of_one_stream_are_co_partitioned_and_the_first_leads() -> None:
    app, orders, totals = new_app()
    more = app.topic("more", key=str, value=int)
    app.stream(orders, more).to(totals)
    (stage,) = app.topology().stages
    assert (stage.name, stage.sources) == ("orders", ("orders", "more"))
    app.stream(app.topic("third", key=str, value=int), more).to(totals)
    assert [stage.sources for stage in app.topology().stages] == [("orders", "more", "third")]


def test_stages_come_upstream_first() -> None:
    app, orders, totals = new_app()
    per_key = app.stream(orders).key_by(str, name="one").count(name="n-one")
    per_key.key_by(lambda n: n % 2, name="two", key=int).count(name="n-two").to(totals)
    app.stream(orders).key_by(str, name="three").count(name="n-three")
    stages = app.topology().stages
    assert [(stage.name, stage.inputs[0].upstream) for stage in stages] == [
        ("orders", None),
        ("one", "orders"),
        ("three", "orders"),
        ("two", "one"),
    ]
    assert app.topology().stage("two").stores[0].key_codec == {"codec": "integer", "bits": 64}


def test_a_stream_that_leads_nowhere_does_not_run() -> None:
    app, orders, totals = new_app()
    stream = app.stream(orders)
    stream.map(lambda _v: 1 / 0)
    stream.to(totals)
    steps = app.describe()["stages"][0]["steps"]
    assert [step["kind"] for step in steps] == ["stream", "to"]


def test_a_stateful_step_runs_even_if_nobody_reads_it() -> None:
    app, orders, _ = new_app()
    app.stream(orders, co_partitioned=True).count(name="n")
    assert [store.name for store in app.topology().stores] == ["n"]


def test_description_is_json_and_text() -> None:
    app, orders, totals = new_app()
    app.stream(orders).key_by(str, name="by-text").count(name="n", ttl=timedelta(1)).to(totals)
    assert msgspec.json.decode(msgspec.json.encode(app.describe())) == app.describe()
    text = app.describe_text()
    for expected in (
        "application shop",
        "stage by-text",
        "store    n (value",
        "re-keys  by-text",
        "writes   totals",
    ):
        assert expected in text


def merge_across(app: sf.App, orders: Any, totals: Any) -> None:
    keyed = app.stream(orders).key_by(str, name="one")
    app.stream(app.topic("more", key=str, value=int), co_partitioned=True).merge(keyed).to(totals)


def windowed_state(app: sf.App, orders: Any, totals: Any) -> None:
    keyed = app.stream(orders, co_partitioned=True).window(sf.Tumbling(timedelta(1))).count(name="n")
    keyed.count(name="m").to(totals)


def same_store(app: sf.App, orders: Any, _totals: Any) -> None:
    stream = app.stream(orders, co_partitioned=True)
    stream.count(name="n")
    stream.sum(name="n")


def different_sources(app: sf.App, orders: Any, totals: Any) -> None:
    app.stream(orders, app.topic("other", key=int, value=int)).to(totals)


def rekey_named_like_topic(app: sf.App, orders: Any, _totals: Any) -> None:
    app.stream(orders).key_by(str, name="orders").count(name="n")


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda app, orders, totals: None, "does nothing"),
        (lambda app, orders, totals: app.stream(orders).map(abs), "does nothing"),
        (lambda app, orders, totals: app.stream(orders).count(name="n"), "no key of its own"),
        (lambda app, orders, totals: app.stream(), "reads no topic"),
        (lambda app, orders, totals: app.stream(orders).branch(), "no predicates"),
        (lambda app, orders, totals: app.stream(orders).key_by(str, name="a b"), "cannot be the name"),
        (lambda app, orders, totals: app.stream(orders).key_by(str, name="x" * 200), "cannot be the name"),
        (lambda app, orders, totals: app.topic("bad/name"), "cannot be the name"),
        (lambda app, orders, totals: app.topic("orders", value=str), "declared twice"),
        (lambda app, orders, totals: sf.App(".."), "cannot be the name"),
        (merge_across, "partitioned in different ways"),
        (windowed_state, "window's key"),
        (same_store, "used by two stores"),
        (different_sources, "declared differently"),
        (rekey_named_like_topic, "named like a source topic"),
    ],
)
def test_a_graph_that_cannot_run_is_refused_with_what_to_do(
    build: Callable[[sf.App, Any, Any], object], why: str
) -> None:
    app, orders, totals = new_app()

    def written() -> object:
        return build(app, orders, totals), app.topology()

    with pytest.raises(GraphError, match=why) as caught:
        written()
    assert caught.value.action.endswith((".", "`"))


def test_merge_of_different_keys_is_refused() -> None:
    app, orders, _ = new_app()
    other = app.topic("other", key=int, value=int)
    with pytest.raises(GraphError, match="different keys"):
        app.stream(orders).merge(app.stream(other))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_second", [False, True])
def test_what_comes_of_a_stage_is_not_joined_with_what_that_keeps(is_second: bool) -> None:
    app = sf.App("shop")
    orders, out = app.topic("orders", key=str, value=int), app.topic("out", key=str, value=list)
    table = app.table(orders, name="kept")
    counts = table.group_by(str, name="by-value", key=str).count(name="counted")
    other = app.table(orders, name="again") if is_second else table
    counts.left_join(other, lambda count, value: [count, value], name="both").to(out)
    if is_second:
        assert len(app.topology().stages) == 3
    else:
        with pytest.raises(GraphError, match="through by-value is joined or merged") as refused:
            app.topology()
        assert "a second time" in str(refused.value)
