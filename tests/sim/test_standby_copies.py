"""One worker's copies by themselves: what they hold after torn, aborted and endless commits, trims and broken disks."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from stateflow.changelog.commit_record import COMMIT_KEY, CommitRecord
from stateflow.changelog.position import NO_POSITION
from stateflow.checkpoint.planner import plan_task
from stateflow.clock import ManualClock
from stateflow.errors import DiskFull, StateLocked
from stateflow.log.base import TopicInfo, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.standby import copy as copy_module
from stateflow.runtime.standby.copies import StandbyCopies
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.member_records import CopyReport
from tests.sim.counting import STORE
from tests.sim.fleet import Disk, Fleet, OpenStores


class Site:
    """The changelog of one task, written by hand, and a worker that copies it."""

    def __init__(self, fleet: Fleet, records_per_slice: int = 5_000) -> None:
        self.fleet = fleet
        self.cluster: MemoryCluster = fleet.cluster
        self.clock: ManualClock = fleet.clock
        self.wiring: TaskWiring = next(task for task in fleet.wiring.tasks() if task.changelogs)
        self.changelog: TopicPartition = self.wiring.changelogs[STORE]
        self.disk = Disk("here", self.clock)
        self.writer = self.cluster.writer(self.wiring.transactional_id)
        self.sequence = -1
        self.refusal: Exception | None = None
        settings = WorkerSettings(state_dir=Path("unused"), standby_records_per_slice=records_per_slice)
        self.copies: StandbyCopies[OpenStores] = StandbyCopies(
            self.cluster, self._opened, settings, self.clock
        )
        self.want()

    def _opened(self, wiring: TaskWiring, _cancelled: object) -> OpenStores:
        if self.refusal is not None:
            raise self.refusal
        return self.disk.opened(wiring, self)

    def want(self) -> None:
        """Copy the task."""
        self.copies.want({self.wiring.id: self.wiring})

    def write(self, _ended: bool = True, /, **values: str | None) -> None:
        """A transaction with changes; ended with a commit record, or torn before it."""
        self.writer.begin()
        for key, value in values.items():
            data = None if value is None else value.encode()
            self.writer.send(self.changelog.topic, key.encode(), data, partition=self.changelog.partition)
        if _ended:
            self.sequence += 1
            record = CommitRecord(0, self.sequence, len(values), NO_POSITION).encode()
            self.writer.send(self.changelog.topic, COMMIT_KEY, record, partition=self.changelog.partition)
        self.writer.commit()

    def turn(self, turns: int = 60) -> None:
        """Slices, with time between them."""
        for _ in range(turns):
            self.copies.turn()
            self.clock.advance(ms=50)

    def report(self) -> CopyReport:
        """What the copy says of itself."""
        (report,) = self.copies.reports()
        return report

    @property
    def held(self) -> dict[str, str]:
        """What the copy holds."""
        reader = self.disk.tasks[self.wiring.id].reader(STORE)
        return {key.decode(): value.decode() for key, value in reader.scan()}

    def to_read(self) -> tuple[str, int]:
        """What opening the task from the copy would do: action and slots."""
        tasks = self.disk.tasks[self.wiring.id]
        wiring = self.wiring
        plan = plan_task(self.cluster, wiring.id, wiring.changelogs, wiring.topic_ids, tasks, self.clock)
        return plan.stores[0].action, plan.slots


@pytest.fixture
def site() -> Site:
    return Site(Fleet())


def test_half_a_commit_never_enters_a_copy(site: Site) -> None:
    site.write(a="1", b="1")
    site.turn()
    assert site.held == {"a": "1", "b": "1"}
    site.write(False, a="torn", c="torn")
    site.turn()
    assert site.held == {"a": "1", "b": "1"}
    assert site.report().lag_slots == 3, "two changes and a marker, none of them decided"
    assert site.to_read()[0] == "tail"
    site.write(a="1", c=None, d="2")  # the next owner writes the orphaned keys again, and goes on
    site.turn()
    assert site.held == {"a": "1", "b": "1", "d": "2"}
    assert site.report().lag_slots == 0


def test_a_copy_that_begins_at_a_torn_end_stops_before_it(site: Site) -> None:
    site.write(a="1")
    site.write(False, a="torn")
    site.turn()
    assert site.held == {"a": "1"}
    site.write(a="1", b="2")
    site.turn()
    assert site.held == {"a": "1", "b": "2"}


def test_what_was_aborted_is_never_seen_and_open_transactions_wait(site: Site) -> None:
    site.write(a="1")
    site.writer.begin()
    site.writer.send(site.changelog.topic, b"a", b"open", partition=site.changelog.partition)
    site.turn()
    assert site.held == {"a": "1"}
    site.writer.abort()
    site.turn()
    assert site.held == {"a": "1"}
    assert site.report().lag_slots == 0


def test_slices_are_bounded_in_records() -> None:
    site = Site(Fleet(), records_per_slice=10)
    site.turn(5)
    for number in range(40):
        site.write(**{f"k{number}": "1", "last": str(number)})
    seen = []
    for _ in range(14):
        site.turn(1)
        seen.append(len(site.held))
    steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(steps) <= 10
    site.turn()
    assert len(site.held) == 41


def test_a_copy_that_the_log_was_trimmed_past_is_opened_anew_from_an_image(site: Site) -> None:
    topic = site.changelog.topic
    site.cluster.alter_topic_config(topic, {"cleanup.policy": "compact,delete"})
    site.write(a="1", b="1")
    site.turn()
    for number in range(20):
        site.write(c=str(number))
    end = site.cluster.ranges([site.changelog])[site.changelog].offset_next
    site.cluster.trim({site.changelog: end - 3})
    site.turn(5)
    assert site.report().state == "failed", "what is left of the log is not the whole state"
    assert site.held == {"a": "1", "b": "1"}
    assert site.disk.open == {}, "so that an image can be put in its place"

    image = site.disk.tasks[site.wiring.id]  # as whoever opens stores would fetch one
    position = image.position(STORE)
    assert position is not None
    image.apply({STORE: [(b"c", b"18")]}, {STORE: replace(position, offset_next=end - 3)})
    site.turn(200)
    assert site.held == {"a": "1", "b": "1", "c": "19"}
    assert site.report().lag_slots == 0


def test_a_copy_far_behind_is_filled_again_instead_of_holding_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_module, "REFILL_SLOTS", 50)
    site.turn()
    for number in range(80):
        site.write(**{f"k{number % 7}": str(number)})
    site.clock.advance(seconds=2)
    site.turn(1)
    assert site.report().state == "filling"
    site.turn()
    assert site.report().state == "following"
    assert site.held == {f"k{number % 7}": str(number) for number in range(80)}


def test_a_quiet_copy_stays_fresh_so_that_it_is_not_thrown_away(site: Site) -> None:
    site.write(a="1")
    site.turn()
    for _ in range(3):
        site.clock.advance(seconds=20 * 3600)
        site.turn()
    site.write(b="1")
    action, slots = site.to_read()
    assert action == "tail", "three days later it is still good for a tail, as it looked every second"
    assert slots <= 4


def test_a_recreated_changelog_is_no_continuation(site: Site) -> None:
    site.write(a="1")
    site.turn()
    site.cluster.delete([site.changelog.topic])
    site.cluster.create([TopicSpec(site.changelog.topic, 4)])
    site.turn()
    assert site.report().state == "failed"
    assert site.report().lag_slots is None
    assert site.held == {"a": "1"}


def test_a_copy_that_fails_is_tried_again_and_hurts_nobody(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.refusal = DiskFull("no space left.", action="make room.")
    site.turn(5)
    assert site.report().state == "failed"
    assert caplog.text.count("its standby copy failed") == 1
    site.refusal = StateLocked("in use.", action="wait.")
    site.turn(120)
    assert caplog.text.count("its standby copy failed") == 2, "less and less often"
    site.refusal = None
    site.write(a="1")
    site.turn(400)
    assert site.held == {"a": "1"}
    assert site.report().state == "following"


def test_a_copy_is_promoted_under_its_lock_and_not_taken_back(site: Site) -> None:
    site.write(a="1")
    site.turn()
    task = site.wiring.id
    stores = site.copies.take(task)
    assert stores is not None
    assert site.disk.open == {task: site}, "the lock was never let go"
    assert stores.reader(STORE).get(b"a") == b"1"
    site.want()
    site.turn()
    assert site.copies.reports() == [], "the worker holds the task"
    assert site.copies.take(task) is None
    stores.close()
    site.copies.hold([])
    site.want()
    site.turn()
    assert site.report().state == "following"


def test_a_copy_is_promoted_while_it_is_filled_and_keeps_what_it_has() -> None:
    site = Site(Fleet(), records_per_slice=20)
    for number in range(100):
        site.write(**{f"k{number:03}": "1"})
    site.turn(3)
    assert site.report().state == "filling"
    stores = site.copies.take(site.wiring.id)
    assert stores is not None
    assert 0 < len(site.held) < 100
    action, slots = site.to_read()
    assert action == "tail"
    assert slots < 300


def test_closing_lets_go_of_every_lock(site: Site) -> None:
    site.write(a="1")
    site.turn()
    site.copies.close()
    assert site.disk.open == {}
    assert site.held == {"a": "1"}


def test_a_promotion_waits_for_an_opening_that_hangs_only_until_it_is_told() -> None:
    site = Site(Fleet())
    entered, cancelled = threading.Event(), threading.Event()

    def slow(wiring: TaskWiring, is_cancelled: object) -> OpenStores:
        entered.set()
        while not is_cancelled():  # type: ignore[operator]
            cancelled.wait(0.01)
        return site.disk.opened(wiring, site)

    site.copies._open_stores = slow
    worker = threading.Thread(target=site.copies.turn)
    worker.start()
    assert entered.wait(5)
    stores = site.copies.take(site.wiring.id)
    worker.join()
    assert stores is not None
    stores.close()
    assert site.disk.open == {}


def test_at_least_once_the_marker_decides() -> None:
    fleet = Fleet("at-least-once")
    site = Site(fleet)
    site.wiring = replace(site.wiring, guarantee="at-least-once")
    site.write(False, a="1")
    site.turn()
    assert site.held == {"a": "1"}
    assert site.report().lag_slots == 0


def test_the_poll_thread_does_not_wait_for_a_slice(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice asks the cluster where changelogs end, which takes as long as brokers are away."""
    site.write(a="1")
    site.turn()
    asked, answered = threading.Event(), threading.Event()
    describe = site.cluster.describe

    def describe_slowly(topics: Iterable[str]) -> dict[str, TopicInfo]:
        asked.set()
        assert answered.wait(60)
        return describe(topics)

    monkeypatch.setattr(site.cluster, "describe", describe_slowly)
    site.clock.advance(seconds=5)
    standby = threading.Thread(target=site.copies.turn)
    standby.start()
    assert asked.wait(60)
    poll = threading.Thread(target=site.copies.hold, args=(["number-9"],))
    poll.start()
    poll.join(10)
    waited = poll.is_alive()
    answered.set()
    for thread in (poll, standby):
        thread.join()
    assert not waited, "the poll thread waited for the brokers"
