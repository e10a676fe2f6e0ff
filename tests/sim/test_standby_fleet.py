"""Standby copies and placement by warmth, real workers on a memory log: who runs what, and what a take-over reads."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from stateflow.catalog.model import Guarantee
from stateflow.changelog.format import is_reserved
from stateflow.cli.workers import standby_facts
from stateflow.errors import BrokerUnreachable
from stateflow.log.reading import read_topic
from stateflow.record import Record
from tests.sim.counting import APP, OUTPUT, STORE, number_of
from tests.sim.fleet import SESSION_MS, STEP_MS, Fleet, Node

pytestmark = pytest.mark.slow

WORDS = [b"word-%d" % (n * n % 61) for n in range(600)]
STATEFUL = {f"number-{partition}" for partition in range(4)}


def assert_exactly_once(fleet: Fleet) -> None:
    expected = Counter(fleet.fed)
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for record in records(fleet, OUTPUT):
        numbers[record.key].append(number_of(record.value))
    for word, found in numbers.items():
        assert found == list(range(1, expected[word] + 1)), word
    assert numbers.keys() == expected.keys()
    assert state(fleet) == expected


def records(fleet: Fleet, topic: str) -> list[Record]:
    return [record for batch in read_topic(fleet.cluster, topic) for record in batch.records()]


def state(fleet: Fleet) -> dict[bytes, int]:
    """What the tasks' own stores hold."""
    return {key: number for task in STATEFUL for key, number in fleet.runner(task).disk.content(task).items()}


def read_of(node: Node, tasks: set[str]) -> int:
    """Records that a node read to open these tasks; none where there was nothing to restore."""
    return sum(progress.records_total for task, progress in node.restored.items() if task in tasks)


def assert_copies_are_equal(fleet: Fleet) -> None:
    for task in STATEFUL:
        assert fleet.copier(task).disk.content(task) == fleet.runner(task).disk.content(task)


@pytest.fixture
def pair() -> Fleet:
    fleet = Fleet()
    fleet.join("a")
    fleet.join("b")
    fleet.feed(WORDS)
    fleet.settle()
    return fleet


def test_tasks_are_spread_from_the_start_and_each_is_copied_on_the_other_disk(pair: Fleet) -> None:
    assert Counter(name for _, name in pair.started) == {"a": 3, "b": 3}, "nobody took all and handed back"
    for task in STATEFUL:
        assert pair.copier(task) is not pair.runner(task)
    assert_copies_are_equal(pair)
    assert_exactly_once(pair)


def test_a_copy_is_promoted_and_reads_only_what_is_left(pair: Fleet) -> None:
    dead, survivor = pair.nodes["a"], pair.nodes["b"]
    lost = dead.running & STATEFUL
    pair.feed(WORDS[:40])
    dead.kill()
    pair.until(lambda: len(survivor.running) == 6)
    pair.feed(WORDS[:100])
    pair.until(lambda: pair.is_settled())
    assert_exactly_once(pair)
    whole = sum(
        log.slots
        for task in pair.wiring.tasks()
        if task.id in lost
        for log in pair.cluster.ranges(task.changelogs.values()).values()
    )
    read = read_of(survivor, lost)
    assert read < whole / 10, f"{read} of {whole}"


def test_without_copies_the_whole_changelog_is_read() -> None:
    """The measure of the test before: one replica less, and all is read."""
    fleet = Fleet(standby_replicas=0)
    fleet.join("a")
    fleet.join("b")
    fleet.feed(WORDS)
    fleet.settle()
    lost = fleet.nodes["a"].running & STATEFUL
    before = sum(len(fleet.disks["a"].content(task)) for task in lost)
    fleet.nodes["a"].kill()
    fleet.settle()
    assert sum(fleet.nodes["b"].restored[task].records_total for task in lost) >= before
    assert_exactly_once(fleet)


def test_a_worker_that_joins_warms_up_before_it_takes_anything_over(pair: Fleet) -> None:
    pair.started.clear()
    joined = pair.join("c")
    warmed: set[str] = set()

    def settled() -> bool:
        warmed.update(report.task for report in joined.copies.reports())
        return bool(joined.running) and pair.is_settled()

    pair.until(settled)
    assert len(pair.started) <= 3, f"more moved than balance asks for: {pair.started}"
    moved = {task for task, name in pair.started if name == "c"} & STATEFUL
    assert moved
    assert moved <= warmed
    assert read_of(joined, moved) <= 60 * len(moved), "what is left after the acceptable lag"
    sizes = sorted(len(node.running) for node in pair.alive)
    assert sizes == [2, 2, 2]
    pair.feed(WORDS)
    pair.settle()
    assert_exactly_once(pair)
    assert_copies_are_equal(pair)


def test_nothing_moves_while_nothing_happens(pair: Fleet) -> None:
    placement = pair.placement
    assert placement is not None
    pair.started.clear()
    pair.feed(WORDS)
    for _ in range(400):
        pair.turn()
    assert pair.started == []
    assert pair.placement is not None
    assert pair.placement.number == placement.number


def test_an_outage_of_the_coordinator_leaves_everything_where_it_is(
    pair: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreachable(_group: str) -> list[str]:
        raise BrokerUnreachable("no coordinator answers.", action="wait.")

    pair.started.clear()
    with monkeypatch.context() as outage:
        outage.setattr(pair.cluster, "group_members", unreachable)
        pair.feed(WORDS[:50])
        for _ in range(100):
            pair.turn()
    assert "Cannot exchange news with the other workers" in caplog.text
    assert pair.started == []
    pair.settle()
    assert_exactly_once(pair)


def test_a_named_worker_that_is_restarted_gets_its_tasks_back() -> None:
    fleet = Fleet()
    fleet.join("named-a")
    fleet.join("named-b")
    fleet.feed(WORDS)
    fleet.settle()
    held = set(fleet.nodes["named-a"].running)
    fleet.nodes["named-a"].kill(power_cut=False)
    fleet.started.clear()
    again = fleet.join("named-a")
    turns = fleet.until(lambda: again.running == held)
    assert turns * STEP_MS < SESSION_MS, "nobody waited for a session to end"
    assert {name for _, name in fleet.started} == {"named-a"}
    assert read_of(again, held) <= 60
    fleet.feed(WORDS)
    fleet.settle()
    assert_exactly_once(fleet)


def test_workers_tell_whether_the_native_core_does_their_work() -> None:
    fleet = Fleet()
    fleet.join("a")
    fleet.join("plain")
    fleet.settle()
    workers = standby_facts(fleet.cluster, APP, fleet.clock)["workers"]
    assert {worker["host"]: worker["native"] for worker in workers} == {"a": True, "plain": False}


def test_a_clean_stop_hands_over_without_waiting_for_the_session(pair: Fleet) -> None:
    pair.nodes["a"].stop()
    turns = pair.until(lambda: len(pair.nodes["b"].running) == 6)
    assert turns * STEP_MS < SESSION_MS
    pair.feed(WORDS)
    pair.settle()
    assert_exactly_once(pair)


def hang(fleet: Fleet, name: str) -> Node:
    """A worker has processed what it has not committed, and hears and says nothing any more."""
    node = fleet.nodes[name]
    node.worker._intake.poll(0)
    node.worker._process_for_a_turn()
    assert any(running.task.is_dirty for running in node.worker._tasks.values())
    node.alive = False
    member = node.worker._group
    member._group.fall_silent(member._member)  # type: ignore[attr-defined]  # the memory log's side of it
    return node


def test_a_worker_that_hung_finds_its_tasks_promoted_and_can_change_nothing(pair: Fleet) -> None:
    pair.feed(WORDS[:200])
    zombie, survivor = hang(pair, "a"), pair.nodes["b"]
    pair.until(lambda: len(survivor.running) == 6)
    pair.feed(WORDS[:100])
    dirty = [lead for lead, running in zombie.worker._tasks.items() if running.task.is_dirty]
    zombie.worker._commit(dirty[:1])
    assert dirty[0] not in zombie.worker._tasks, "it was fenced"
    zombie.kill()
    pair.settle()
    assert_exactly_once(pair)


def test_a_worker_that_hung_and_notices_comes_back_without_tasks(pair: Fleet) -> None:
    pair.feed(WORDS[:200])
    zombie, survivor = hang(pair, "a"), pair.nodes["b"]
    pair.until(lambda: len(survivor.running) == 6)
    pair.feed(WORDS[:100])
    zombie.worker.step()
    assert zombie.running == set()
    assert zombie.worker.starting == []
    zombie.alive = True
    pair.settle()
    assert len(zombie.running) == len(survivor.running) == 3
    assert_exactly_once(pair)


def test_two_copies_are_on_two_disks_and_survive_two_deaths() -> None:
    fleet = Fleet(standby_replicas=2)
    for name in ("a", "b", "c"):
        fleet.join(name)
    fleet.feed(WORDS)
    fleet.settle()
    for report_of in STATEFUL:
        holders = [n.name for n in fleet.alive if report_of in {r.task for r in n.copies.reports()}]
        assert len(holders) == 2
    fleet.nodes["a"].kill()
    fleet.nodes["b"].kill()
    fleet.until(lambda: len(fleet.nodes["c"].running) == 6)
    assert read_of(fleet.nodes["c"], STATEFUL) <= 60
    fleet.feed(WORDS)
    fleet.settle()
    assert_exactly_once(fleet)


def test_workers_that_share_a_disk_share_its_copies() -> None:
    fleet = Fleet()
    fleet.join("a", "left")
    fleet.join("b", "right")
    fleet.join("c", "right")
    fleet.feed(WORDS)
    fleet.settle()
    for task in STATEFUL:
        assert fleet.copier(task).disk is not fleet.runner(task).disk
    fleet.nodes["a"].kill()
    fleet.until(lambda: sum(len(node.running) for node in fleet.alive) == 6)
    for node in fleet.alive:
        assert all(progress.records_total <= 60 for progress in node.restored.values())
        assert not node.copies.reports(), "there is no other disk"
    fleet.feed(WORDS)
    fleet.settle()
    assert_exactly_once(fleet)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_copies_follow_a_changelog_that_is_compacted_under_them(guarantee: Guarantee) -> None:
    fleet = Fleet(guarantee)
    fleet.join("a")
    fleet.join("b")
    changelog = next(task for task in fleet.wiring.tasks() if task.changelogs).changelogs[STORE].topic
    for _ in range(6):
        fleet.feed(WORDS[:150])
        for _ in range(5):
            fleet.turn()
        fleet.cluster.compact(changelog)
    fleet.settle()
    assert_copies_are_equal(fleet)
    logged = {
        record.key: number_of(record.value)
        for record in records(fleet, changelog)
        if not is_reserved(record.key)
    }
    assert logged == state(fleet) == Counter(fleet.fed)
    fleet.nodes["a"].kill()
    fleet.feed(WORDS)
    fleet.settle()
    assert state(fleet) == Counter(fleet.fed) or guarantee == "at-least-once"
    assert all(number >= Counter(fleet.fed)[word] for word, number in state(fleet).items())
