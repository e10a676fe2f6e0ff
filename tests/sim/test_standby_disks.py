"""What is left of tasks on real disks: found warm, deleted when nobody wants it, dropped with its generation."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import RoutingEntry
from stateflow.clock import ManualClock
from stateflow.errors import BrokerUnreachable, StateForeign, StillRunning
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.standby import unassigned_stores
from stateflow.runtime.standby.placement_mode import refuse_mixed
from stateflow.runtime.standby.unassigned_stores import DiskCleaner, KeptState, directory_of, disk_looker
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.member_records import (
    MemberRecord,
    create_membership_topic,
    encode_member,
    membership_partition,
)
from stateflow.runtime.worker.prepare import prepare
from stateflow.store import directory
from stateflow.store.base import StorePosition
from stateflow.store.directory import Identity, disk_id, find_task_directories
from stateflow.store.rocks import RocksResources, RocksTaskStores
from tests.sim.counting import APP, OUTPUT, SOURCE, STORE, topology
from tests.sim.outage import AwayCluster, Outage


class Machine:
    """A state directory, and a cluster with the application on it."""

    def __init__(self, root: Path) -> None:
        self.state = root / "state"
        self.clock = ManualClock(1_700_000_000_000)
        self.cluster = MemoryCluster(clock=self.clock)
        self.cluster.create([TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 3)])
        self.wiring: Wiring = prepare(self.cluster, topology(), "exactly-once", 3, self.clock)
        self.tasks: dict[str, TaskWiring] = {t.id: t for t in self.wiring.tasks() if t.changelogs}
        settings = WorkerSettings(state_dir=self.state)
        self._open = rocks_opener(self.cluster, settings, RocksResources())

    def opened(self, task: str) -> RocksTaskStores:
        """The stores of a task, locked."""
        return self._open(self.tasks[task], lambda: False)

    def kept(self, task: str, offset_next: int) -> None:
        """Leave a task's store behind that reaches so far."""
        stores = self.opened(task)
        topic = self.tasks[task].changelogs[STORE].topic
        position = StorePosition(self.tasks[task].topic_ids[topic], offset_next, self.clock.now_ms())
        stores.apply({STORE: [(b"a", b"1")]}, {STORE: position})
        stores.close()

    def log(self, task: str, records: int) -> None:
        """Write to a task's changelog."""
        changelog = self.tasks[task].changelogs[STORE]
        writer = self.cluster.writer()
        for _ in range(records):
            writer.send(changelog.topic, b"a", b"1", partition=changelog.partition)
        writer.commit()
        writer.close()

    def cleaner(self) -> DiskCleaner:
        """As a worker that starts now makes one."""
        catalog = ControlTopic(self.cluster, APP).load()
        return DiskCleaner(self.state, catalog, 600, self.clock)

    def there(self) -> list[str]:
        """Task directories."""
        return sorted(f"{p.parent.name}/{p.name}" for p in self.state.glob(f"{APP}/g*/*"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_left_on_the_disk_is_found_with_its_lag(machine: Machine) -> None:
    machine.log("number-0", 10)
    machine.kept("number-0", 7)
    machine.log("number-1", 5)
    machine.kept("number-1", 99)  # ahead of its log: of no use
    kept = KeptState(
        machine.cluster, machine.tasks, disk_looker(machine.cluster, machine.state, machine.clock)
    )
    assert [(report.task, report.lag_slots) for report in kept.reports(set())] == [("number-0", 3)]
    machine.log("number-0", 4)
    assert [report.lag_slots for report in kept.reports(set())] == [7]
    assert kept.reports({"number-0"}) == [], "in use: others report it"
    assert kept.reports(set()) == [], "and after that it is looked at anew, when it was let go"
    kept.let_go(["number-0"])
    assert [report.lag_slots for report in kept.reports(set())] == [7]


def test_a_store_that_somebody_has_open_is_not_left(machine: Machine) -> None:
    machine.log("number-0", 10)
    machine.kept("number-0", 7)
    stores = machine.opened("number-0")
    kept = KeptState(
        machine.cluster, machine.tasks, disk_looker(machine.cluster, machine.state, machine.clock)
    )
    assert kept.reports(set()) == []
    stores.close()


def test_what_moved_away_is_deleted_after_a_while_and_never_while_it_is_open(machine: Machine) -> None:
    for task in machine.tasks:
        machine.kept(task, 1)
    cleaner = machine.cleaner()
    stores = machine.opened("number-2")
    assert cleaner.clean({"number-0"}) == []
    machine.clock.advance(seconds=599)
    assert cleaner.clean({"number-0"}) == []
    machine.clock.advance(seconds=1)
    assert cleaner.clean({"number-0"}) == ["number-1"]
    assert machine.there() == ["g0/number-0", "g0/number-2"]
    stores.close()
    machine.clock.advance(seconds=600)
    cleaner.clean({"number-0"})
    machine.clock.advance(seconds=600)
    assert cleaner.clean({"number-0"}) == ["number-2"]
    assert not list((machine.state / APP / ".removed").iterdir())


def test_what_is_wanted_again_starts_its_time_anew(machine: Machine) -> None:
    machine.kept("number-0", 1)
    cleaner = machine.cleaner()
    cleaner.clean(set())
    machine.clock.advance(seconds=500)
    cleaner.clean({"number-0"})
    machine.clock.advance(seconds=500)
    assert cleaner.clean(set()) == []
    assert machine.there() == ["g0/number-0"]


def test_a_retired_generation_goes_at_the_next_start(machine: Machine) -> None:
    for task in machine.tasks:
        machine.kept(task, 1)
    assert machine.cleaner().clean_generations() == [], "it is active"
    control = ControlTopic(machine.cluster, APP)
    first = control.load().generations[0]
    routing = RoutingEntry(kind="modulo", partitions=5)
    preparing = msgspec.structs.replace(first, generation=1, state="preparing", routing=routing)
    control.write_generations([preparing])
    assert machine.cleaner().clean_generations() == [], "it may still be aborted"
    control.write_generations(
        [msgspec.structs.replace(preparing, state="active"), msgspec.structs.replace(first, state="retired")]
    )
    assert sorted(machine.cleaner().clean_generations()) == sorted(machine.tasks)
    assert machine.there() == []


def test_two_workers_that_clean_one_disk_do_not_mind_each_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.kept("number-0", 1)
    machine.kept("number-1", 1)
    first, second = machine.cleaner(), machine.cleaner()
    first.clean(set())
    second.clean(set())
    machine.clock.advance(seconds=600)
    left = ["g0/number-0", "g0/number-1"]

    def is_free(lock: Path) -> None:
        nonlocal left
        if left:  # the other worker cleans between this one's look and what it does
            left = []
            assert second.clean(set()) == ["number-0", "number-1"]

    monkeypatch.setattr(unassigned_stores, "lock_holder", is_free)
    assert first.clean(set()) == []
    assert machine.there() == left == []


def test_a_directory_that_is_deleted_while_it_is_looked_at_is_none(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in machine.tasks:
        machine.kept(task, 1)
    read = directory.read_identity

    def read_later(path: Path) -> Identity:
        if path.name == "number-0":
            shutil.rmtree(path)
        return read(path)

    monkeypatch.setattr(directory, "read_identity", read_later)
    found = [one.identity.task for one in find_task_directories(machine.state)]
    assert found == ["number-1", "number-2"]
    (machine.state / APP / "g0" / "number-1" / "identity.json").write_text("{")
    with pytest.raises(StateForeign, match="cannot be read"):
        list(find_task_directories(machine.state))


def test_an_outage_does_not_hide_what_is_on_the_disk(machine: Machine) -> None:
    machine.log("number-0", 10)
    machine.kept("number-0", 7)
    outage = Outage()
    away = AwayCluster(machine.cluster, outage)
    kept = KeptState(away, machine.tasks, disk_looker(away, machine.state, machine.clock))
    outage.is_on = True
    with pytest.raises(BrokerUnreachable):
        kept.reports(set())
    outage.is_on = False
    assert [(report.task, report.lag_slots) for report in kept.reports(set())] == [("number-0", 3)]


def test_a_disk_has_one_name_for_all_its_workers(tmp_path: Path) -> None:
    name = disk_id(tmp_path / "one", APP)
    assert disk_id(tmp_path / "one", APP) == name
    assert disk_id(tmp_path / "two", APP) != name


def test_a_copy_stands_where_the_task_itself_would(machine: Machine) -> None:
    stores = machine.opened("number-0")
    wiring = machine.tasks["number-0"]
    assert stores.directory == directory_of(machine.cluster, machine.state, wiring)
    stores.close()


class Listener:
    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None: ...

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None: ...

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None: ...


@pytest.mark.parametrize("placed", [True, False])
def test_workers_of_the_other_kind_are_refused(machine: Machine, placed: bool) -> None:
    refuse_mixed(machine.cluster, APP, placed=placed)
    member = machine.cluster.group_consumer(APP, [SOURCE], Listener())
    if not placed:
        create_membership_topic(machine.cluster, APP, 1)
        record = MemberRecord(name="w", member_id=member.member_id, host="h", pid=1, disk="d", generation=0)
        writer = machine.cluster.writer()
        writer.send(membership_partition(APP).topic, *encode_member(record), partition=0)
        writer.commit()
    refuse_mixed(machine.cluster, APP, placed=not placed)
    with pytest.raises(StillRunning, match="standby copies"):
        refuse_mixed(machine.cluster, APP, placed=placed)
