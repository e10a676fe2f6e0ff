"""Repairing a control topic: what is shown, what is written, and what only on demand."""

from __future__ import annotations

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.names import control_topic
from stateflow.catalog.records import Found
from stateflow.catalog.repair import Choices, Finding, findings, records
from stateflow.errors import CatalogIncompatible
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from tests.unit.catalog.test_catalog_records import (
    APP,
    BARRIER,
    SAVED,
    STAGE,
    STORE,
    generation,
    plant,
    plant_entry,
)

NOW_MS = 1_700_000_000_000


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def control(cluster: MemoryCluster) -> ControlTopic:
    control = ControlTopic(cluster, "wc")
    control.write([APP, STAGE, STORE, generation(0, "retired"), generation(1, "active"), BARRIER, SAVED])
    return control


def listed(control: ControlTopic, choices: Choices | None = None) -> list[Finding]:
    return findings(control.find(warn=False), NOW_MS, choices)


def repair(control: ControlTopic, choices: Choices | None = None) -> None:
    def decide(found: Found) -> dict[bytes, bytes | None]:
        return records(findings(found, NOW_MS, choices))

    control.put(decide)


def test_nothing_is_wrong_with_a_topic_of_ours(cluster: MemoryCluster, control: ControlTopic) -> None:
    assert listed(control) == []
    before = cluster.ranges([TopicPartition(control_topic("wc"), 0)])
    repair(control)
    assert cluster.ranges([TopicPartition(control_topic("wc"), 0)]) == before


def test_what_is_passed_over_anyway_is_taken_out(cluster: MemoryCluster, control: ControlTopic) -> None:
    before = control.load()
    for key in (b"cut", b"savepoint/one", b"savepoint/\xff", b"store/nobodys"):
        plant(cluster, key, b"\xff\xfe")
    found = {finding.name: finding for finding in listed(control)}
    assert {finding.kind for finding in found.values()} == {"bad"}
    assert found["cut"].what_to_do.startswith("put back what stood at offset")
    assert found["savepoint/\\xff"].what_to_do == "remove it"
    assert all(finding.offset is not None for finding in found.values())
    repair(control)
    assert listed(control) == []
    assert control.load() == before


def test_a_barrier_of_which_nothing_older_is_left_is_followed_by_higher_ids(cluster: MemoryCluster) -> None:
    """Tasks take no part in a barrier with a lower id than their last one."""
    control = ControlTopic(cluster, "wc")
    control.write([APP, STAGE, STORE, generation(0, "active"), msgspec.structs.replace(SAVED, number=41)])
    plant(cluster, b"cut", b"\xff\xfe")
    repair(control)
    barrier = control.load().barrier
    assert barrier is not None
    assert (barrier.state, barrier.barrier_id > NOW_MS // 1000) == ("aborted", True)
    assert listed(control) == []


@pytest.mark.parametrize("key", [b"app", b"stage/main", b"store/seen", b"generation/1"])
def test_what_is_needed_is_put_back_on_demand_only(
    cluster: MemoryCluster, control: ControlTopic, key: bytes
) -> None:
    before = control.load()
    plant(cluster, key, b"\xff\xfe")
    (finding,) = listed(control)
    assert (finding.kind, finding.record) == ("needed", None)
    assert "--restore-older" in finding.what_to_do
    repair(control)
    with pytest.raises(CatalogIncompatible):
        control.load()
    repair(control, Choices(restore_older=True))
    assert control.load() == before


def test_an_entry_that_was_removed_by_hand_comes_back(cluster: MemoryCluster, control: ControlTopic) -> None:
    before = control.load()
    plant(cluster, b"app", None)
    (finding,) = listed(control)
    assert (finding.name, finding.offset) == ("app", None)
    repair(control, Choices(restore_older=True))
    assert control.load() == before


def test_what_was_never_ours_is_removed_by_its_name(cluster: MemoryCluster, control: ControlTopic) -> None:
    before = control.load()
    plant(cluster, b"stage/strange", b"\xff\xfe")
    assert "--discard stage/strange" in listed(control)[0].what_to_do
    repair(control, Choices(restore_older=True))
    assert len(listed(control)) == 1, "there is nothing older to put back"
    repair(control, Choices(discard=frozenset({"stage/strange"})))
    assert control.load() == before


def test_unknown_records_stay_unless_asked_for(cluster: MemoryCluster, control: ControlTopic) -> None:
    plant(cluster, b"whatever", b"\xff\xfe")
    (finding,) = listed(control)
    assert (finding.kind, finding.record) == ("unknown", None)
    repair(control)
    assert len(listed(control)) == 1
    repair(control, Choices(unknown=True))
    assert listed(control) == []


def test_a_savepoint_that_nobody_ends_is_given_up(cluster: MemoryCluster, control: ControlTopic) -> None:
    begun = msgspec.structs.replace(BARRIER, barrier_id=4, state="open", deadline_ms=NOW_MS + 5_000)
    plant_entry(cluster, begun)
    assert listed(control)[0].record is None
    assert "5 s left" in listed(control)[0].why
    (late,) = findings(control.find(), NOW_MS + 9_000)
    assert late.record is not None
    repair(control, Choices(abort_savepoint=True))
    barrier = control.load().barrier
    assert barrier is not None
    assert (barrier.barrier_id, barrier.state) == (4, "aborted")


def test_an_unfinished_change_is_shown_with_what_finishes_it(
    cluster: MemoryCluster, control: ControlTopic
) -> None:
    plant_entry(cluster, generation(2, "preparing"))
    (finding,) = listed(control)
    assert (finding.name, finding.kind, finding.record) == ("generation/2", "unfinished", None)
    assert "scale abort" in finding.what_to_do
    plant_entry(cluster, generation(2, "preparing", savepoint="wc/one.3"))
    assert "savepoint abort" in listed(control)[0].what_to_do


def test_topics_are_known_when_only_stages_and_stores_are_bad(
    cluster: MemoryCluster, control: ControlTopic
) -> None:
    """What `stateflow reset` needs."""
    for key in (b"stage/main", b"store/seen", b"cut"):
        plant(cluster, key, b"\xff\xfe")
    assert control.load_topics().generations.keys() == {0, 1}
    plant(cluster, b"generation/1", b"\xff\xfe")
    with pytest.raises(CatalogIncompatible, match="generation/1"):
        control.load_topics()
