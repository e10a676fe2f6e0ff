"""The first n of a key's items: what moves them, what is told, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.lab.applications.stage import StageBench
from stateflow.operators.steps.error_policy import Policy


def bench(n: int = 2, on_error: Policy = sf.Fail()) -> StageBench:  # noqa: B008
    app = sf.App("site")
    source = app.stream(app.topic("in", key=str, value=sf.Json), co_partitioned=True)
    source.top(n, name="best", by="score", item="item", on_error=on_error).to(
        app.topic("out", key=str, value=sf.Json)
    )
    return StageBench(app.topology().stages[0])


def told(stage: StageBench, *rows: tuple[Any, Any], key: str = "k") -> list[Any]:
    stage.feed(*((key.encode(), sf.Json.encode({"item": item, "score": score}), 0) for item, score in rows))
    return [sf.Json.decode(sent.value or b"") for sent in stage.context.sent.pop("out", [])]


def test_a_score_that_falls_lets_others_up() -> None:
    stage = bench()
    assert told(stage, ("a", 5), ("b", 3), ("c", 2))[-1] == [["a", 5], ["b", 3]]
    assert told(stage, ("a", 1)) == [[["b", 3], ["c", 2]]]
    assert told(stage, ("b", -7)) == [[["c", 2], ["a", 1]]]
    assert told(stage, ("c", None)) == [[["a", 1], ["b", -7]]]
    assert told(stage, ("a", None), ("b", None)) == [[["b", -7]], []]
    assert list(stage.context.stores["best-ranks"].scan()) == []
    assert list(stage.context.stores["best-scores"].scan()) == []


def test_only_changes_of_the_first_are_told_and_keys_are_apart() -> None:
    stage = bench()
    told(stage, ("a", 5), ("b", 3))
    assert told(stage, ("c", 2), ("c", 1), ("a", 5), ("d", None)) == []
    assert told(stage, ("c", 9), key="other") == [[["c", 9]]]


def test_equal_scores_go_by_item_and_numbers_of_both_kinds_compare() -> None:
    stage = bench(5)
    rows = [("b", 1.5), ("a", 1.5), (10, 1.5), (9, 1.5), (-1, 2)]
    assert told(stage, *rows)[-1] == [[-1, 2], [9, 1.5], [10, 1.5], ["a", 1.5], ["b", 1.5]]


@pytest.mark.parametrize("row", [("a", "high"), ([1], 1), (True, 1), ("a", [1])])
def test_what_has_no_rank_follows_the_policy_and_changes_nothing(row: tuple[Any, Any]) -> None:
    stage = bench(on_error=sf.Skip())
    assert told(stage, ("a", 1), row, ("b", 2)) == [[["a", 1]], [["b", 2], ["a", 1]]]
    assert stage.context.counters["skipped_records_total"] == 1


def test_none_is_refused() -> None:
    with pytest.raises(GraphError, match="first 0 items"):
        bench(0)
