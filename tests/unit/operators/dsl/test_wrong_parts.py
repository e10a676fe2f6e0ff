"""What is given for a topic, a stream or a table, and is none of this graph, is told as such."""

from __future__ import annotations

from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError


def ok(*_given: Any) -> int:
    return 1


def new() -> tuple[sf.App, Any, Any, Any]:
    app = sf.App("x")
    numbers = app.topic("numbers", key=str, value=int)
    return app, numbers, app.stream(numbers, co_partitioned=True), app.topic("out", key=str, value=int)


def test_tables_and_streams_of_another_application_are_named() -> None:
    app, numbers, stream, _ = new()
    other = sf.App("other")
    table, theirs = other.table(numbers, name="rows"), other.stream(numbers, co_partitioned=True)
    for build in (
        lambda: stream.join(table, ok, name="j"),
        lambda: stream.merge(theirs),
        lambda: app.table(numbers, name="own").join(table, ok, name="k"),
        lambda: app.process(Both, sf.port(theirs, Both.on_record), name="p"),
    ):
        with pytest.raises(GraphError, match=r"application 'x' is given .*another application") as refused:
            build()
        assert "read from a topic" in refused.value.action


class Both(sf.Operator[str, int, int]):
    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        ctx.emit(value)


@pytest.mark.parametrize("verb", ["stream", "table", "global_table"])
def test_a_topic_is_declared_before_it_is_read(verb: str) -> None:
    app, _, stream, _ = new()
    read: Any = getattr(app, verb)
    names = {} if verb == "stream" else {"name": "n"}
    with pytest.raises(GraphError, match="is no topic") as refused:
        read("t", **names)
    assert "app.topic('t'" in refused.value.action
    with pytest.raises(GraphError, match="is no topic") as refused:
        read(stream, **names)
    assert "to_table" in refused.value.action
    with pytest.raises(GraphError, match="is no topic"):
        read(5, **names)


def test_joins_and_merges_say_what_they_take() -> None:
    app, numbers, stream, _ = new()
    table: Any = app.table(numbers, name="rows")
    with pytest.raises(GraphError, match="neither a table nor a stream"):
        stream.join(numbers, ok, name="a")
    with pytest.raises(GraphError, match="with a stream, not with a table") as refused:
        table.join(stream, ok, name="b")
    assert "stream.join(table" in refused.value.action
    with pytest.raises(GraphError, match="not with a table"):
        table.left_foreign_join("rows", ok, ok, name="c")
    with pytest.raises(GraphError, match="is no stream") as refused:
        stream.merge(table)
    assert "to_stream" in refused.value.action


@pytest.mark.parametrize(
    "name",
    ["x-c-changelog", "x-c-changelog-g2", "x-by-repartition", "x-control", "x-members", "x-claims"],
)
def test_nothing_is_written_to_the_applications_own_topics(name: str) -> None:
    app, _, stream, _ = new()
    counted = stream.key_by(str, name="by", key=str).count(name="c")
    counted.to(app.topic(name, key=str, value=int))
    with pytest.raises(GraphError, match=name) as refused:
        app.topology()
    assert "another topic" in refused.value.action
    app, _, stream, out = new()
    stream.key_by(str, name="by", key=str, on_error=sf.DeadLetter(name)).count(name="c").to(out)
    with pytest.raises(GraphError, match=name):
        app.topology()


@pytest.mark.parametrize("name", ["x-other-changelog", "x-c-changelog-gone", "y-c-changelog", "x-c"])
def test_names_that_only_look_like_them_are_free(name: str) -> None:
    app, _, stream, _ = new()
    stream.key_by(str, name="by", key=str).count(name="c").to(app.topic(name, key=str, value=int))
    assert app.topology().stages[1].outputs == (name,)
