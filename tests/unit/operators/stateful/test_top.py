"""The first n of a key's items: what moves them, what is told, what is refused."""

from __future__ import annotations

import random
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


def test_integers_that_no_float_represents_are_ranked_as_they_are() -> None:
    rng, stage, scores = random.Random(1), bench(6), {}
    told(stage, ("zero", 0.0), ("one", -0.0), key="zeros")
    assert told(stage, ("a", 0), key="zeros") == [[["a", 0], ["one", -0.0], ["zero", 0.0]]]
    for _ in range(300):
        around = rng.choice((1, -1)) * (1 << rng.choice((53, 60, 63))) + rng.randint(-3, 3)
        item, score = rng.randrange(12), rng.choice((float(around), None, *[max(-(1 << 63), around)] * 5))
        scores[item] = score
        told(stage, (item, score))
        ranked = sorted((-known, at) for at, known in scores.items() if known is not None)[:6]
        told(stage, (100, (1 << 64) - 1))
        assert told(stage, (100, None)) == [[[at, -known] for known, at in ranked]], (
            "told once the first has left"
        )


def test_ranks_of_former_builds_are_found_again() -> None:
    """They put an integer where its float is."""
    stage, score = bench(), (1 << 60) + 1
    told(stage, ("a", score))
    ranks = stage.context.stores["best-ranks"]
    ((key, data),) = ranks.scan()
    entry = b"sa"
    ranks.put_many([(key, None), (key[: -len(entry) - 9] + entry, data)])
    assert told(stage, ("b", 1)) == [[["a", score], ["b", 1]]]
    assert told(stage, ("a", score + 1)) == [[["a", score + 1], ["b", 1]]]
    assert told(stage, ("a", None), ("b", None))[-1] == []
    assert list(ranks.scan()) == []


@pytest.mark.parametrize("row", [("a", "high"), ([1], 1), (True, 1), ("a", [1])])
def test_what_has_no_rank_follows_the_policy_and_changes_nothing(row: tuple[Any, Any]) -> None:
    stage = bench(on_error=sf.Skip())
    assert told(stage, ("a", 1), row, ("b", 2)) == [[["a", 1]], [["b", 2], ["a", 1]]]
    assert stage.context.counters["skipped_records_total"] == 1


def test_none_is_refused() -> None:
    with pytest.raises(GraphError, match="first 0 items"):
        bench(0)
