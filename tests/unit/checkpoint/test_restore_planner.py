"""The decision for one store, as a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateflow.checkpoint.planner import Action, StoreFacts, plan_store
from stateflow.errors import TopicMissing, TopicRecreated
from stateflow.record import OffsetRange, TopicPartition
from stateflow.store.base import StorePosition

DAY_MS = 86_400_000
FACTS = StoreFacts(
    store="counts",
    changelog=TopicPartition("app-counts-changelog", 2),
    topic_id_recorded="T",
    topic_id="T",
    log=OffsetRange(0, 100),
    position=None,
    tombstones_kept_ms=DAY_MS,
    now_ms=10 * DAY_MS,
)


def at(offset_next: int, topic_id: str = "T", applied_ms: int = 10 * DAY_MS) -> StorePosition:
    return StorePosition(topic_id, offset_next, applied_ms)


@pytest.mark.parametrize(
    ("position", "log", "action", "offsets", "reason"),
    [
        (None, (0, 0), "empty", (0, 0), "nothing was ever written"),
        (None, (0, 100), "replay", (0, 100), "no local state"),
        (at(100), (0, 100), "reuse", (100, 100), "up to date"),
        (at(100), (100, 100), "reuse", (100, 100), "up to date"),
        (at(0), (0, 0), "reuse", (0, 0), "up to date"),
        (at(60), (0, 100), "tail", (60, 100), "reaches 60"),
        (at(60), (60, 100), "tail", (60, 100), "reaches 60"),
        (at(101), (0, 100), "replay", (0, 100), "ahead of the log's end 100"),
        (at(1), (0, 0), "replay", (0, 0), "ahead of the log's end 0"),
        (at(60, "older"), (0, 100), "replay", (0, 100), "an earlier topic of this name"),
        (at(100, "older"), (0, 100), "replay", (0, 100), "an earlier topic of this name"),
        (at(60, applied_ms=9 * DAY_MS), (0, 100), "tail", (60, 100), "reaches 60"),
        (at(60, applied_ms=9 * DAY_MS - 1), (0, 100), "replay", (0, 100), "kept deletions for 86400 s"),
        (at(100, applied_ms=0), (0, 100), "reuse", (100, 100), "up to date"),
    ],
)
def test_the_decision(
    position: StorePosition | None,
    log: tuple[int, int],
    action: Action,
    offsets: tuple[int, int],
    reason: str,
) -> None:
    plan = plan_store(replace(FACTS, position=position, log=OffsetRange(*log)))
    assert (plan.action, plan.offsets) == (action, OffsetRange(*offsets))
    assert reason in plan.reason
    assert plan.from_empty == (action == "replay")


def test_content_without_a_position_is_dropped_though_the_log_is_empty() -> None:
    plan = plan_store(replace(FACTS, log=OffsetRange(0, 0), has_content=True))
    assert (plan.action, plan.offsets) == ("replay", OffsetRange(0, 0))
    assert plan.from_empty
    assert "nobody knows" in plan.reason
    assert plan.topic_id == "T"


def test_a_missing_changelog_is_an_error() -> None:
    with pytest.raises(TopicMissing, match="app-counts-changelog"):
        plan_store(replace(FACTS, topic_id=None))


@pytest.mark.parametrize("position", [None, at(100), at(100, "new")])
def test_a_recreated_changelog_is_an_error_whatever_is_local(position: StorePosition | None) -> None:
    with pytest.raises(TopicRecreated, match="deleted and created again") as caught:
        plan_store(replace(FACTS, topic_id="new", position=position))
    assert "reset" in caught.value.action
