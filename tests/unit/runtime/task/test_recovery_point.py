"""Where a task resumes, by its commit records and by the consumer group, whichever version wrote them."""

from __future__ import annotations

import pytest

from stateflow.changelog.commit_record import CommitRecord
from stateflow.changelog.event_time import EventTime, PortTime
from stateflow.changelog.position import InputPosition
from stateflow.changelog.sequences import Tail
from stateflow.log.base import Committed
from stateflow.record import TopicPartition
from stateflow.runtime.task.takeover import recovery_point, resolved

INPUT = TopicPartition("app-by-word-repartition", 1)
SAID_BY_0_1 = '{"v":1,"at":7,"base":7,"d":[0,3]}'
RECORDED = EventTime(5, (PortTime("by-word", (5, 6)),))
LAST = CommitRecord(3, 9, 4, InputPosition({INPUT: 10}, RECORDED))
TAILS = {"counts": Tail(LAST, committed_next=50, offset_next=80, keys=frozenset({b"k"}))}


@pytest.mark.parametrize(
    "group", [None, Committed(10), Committed(8), Committed(30), Committed(10, SAID_BY_0_1)]
)
def test_the_commit_record_rules(group: Committed | None) -> None:
    committed = {} if group is None else {INPUT: group}
    found = resolved(TAILS, committed)
    assert (found.restore_next, found.orphaned_keys) == ({"counts": 50}, {"counts": frozenset({b"k"})})
    assert recovery_point([INPUT], found, committed) == LAST.position


def test_where_version_0_1_committed_on_without_records_the_group_rules() -> None:
    committed = {INPUT: Committed(30, SAID_BY_0_1)}
    found = resolved(TAILS, committed)
    assert (found.restore_next, found.orphaned_keys, found.is_torn) == ({"counts": 80}, {}, False)
    assert (found.owner, found.sequence) == (4, 9), "numbers never restart"
    position = recovery_point([INPUT], found, committed)
    assert position == InputPosition({INPUT: 30}, EventTime(7, (PortTime("", (7, 10)),)))


def test_without_any_record_the_group_rules() -> None:
    tails = {"counts": Tail(None, committed_next=80, offset_next=80)}
    committed = {INPUT: Committed(30, SAID_BY_0_1), TopicPartition("elsewhere", 0): Committed(5)}
    found = resolved(tails, committed)
    assert found.restore_next == {"counts": 80}
    assert recovery_point([INPUT], found, committed).offsets == {INPUT: 30}


def test_inputs_that_the_record_does_not_know_are_the_groups() -> None:
    added = TopicPartition("app-by-letter-repartition", 1)
    committed = {INPUT: Committed(8), added: Committed(4)}
    position = recovery_point([INPUT, added], resolved(TAILS, committed), committed)
    assert position.offsets == {INPUT: 10, added: 4}
