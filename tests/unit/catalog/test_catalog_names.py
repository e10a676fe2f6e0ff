"""Names on Kafka and of tasks: what was put together can be taken apart."""

from __future__ import annotations

import pytest

from stateflow.catalog.names import changelog_topic, is_own_topic, stage_and_partition, stage_of, task_id


@pytest.mark.parametrize("stage", ["main", "by-word", "2024-01"])
def test_a_tasks_id_tells_its_stage_and_partition(stage: str) -> None:
    assert stage_and_partition(task_id(stage, 12)) == (stage, 12)
    assert stage_of(task_id(stage, 0)) == stage


def test_a_changelog_is_of_its_application_alone() -> None:
    assert is_own_topic("shop", changelog_topic("shop", "totals", 2))
    assert not is_own_topic("shop", changelog_topic("shopping", "totals"))
