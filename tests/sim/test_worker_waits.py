"""What a worker waits for instead of ending: brokers that are away, its own time-outs, locks, damage to its store."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from stateflow.catalog.model import Guarantee
from stateflow.errors import (
    BrokerUnreachable,
    DiskFull,
    ImagesUnreachable,
    StateCorrupt,
    StateflowError,
    StateLocked,
)
from stateflow.record import TopicPartition
from stateflow.runtime.opening.retries import (
    DAMAGES_MAX,
    LOCKED_SECONDS_MAX,
    PAUSE_SECONDS_MAX,
    PAUSE_SECONDS_MIN,
)
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from tests.sim.crashing import CrashPlan
from tests.sim.outage import AwayCluster, Outage
from tests.sim.test_worker_crashes import WORDS, World, assert_exactly_once, assert_nothing_lost

OUTAGE_SECONDS = 1_200
STEP_SECONDS = 1
LOCKED = StateLocked("the state directory d is in use by process 4711.", action="stop it.", pid=4711)
CORRUPT = StateCorrupt("the store in d is damaged.", action="start again.", path="d", replaceable=True)


class Machine(World):
    """The numbering application on a cluster that can be away, with stores that can refuse to be opened."""

    def __init__(self, guarantee: Guarantee = "exactly-once") -> None:
        super().__init__(guarantee)
        self.outage = Outage()
        self.away = AwayCluster(self.cluster, self.outage)
        self.refusal: StateflowError | None = None
        self.opened_seconds: list[float] = []
        """When the stores of the refused tasks were tried."""

    def begin(self) -> Worker:
        return Worker(self.away, self.wiring, self.open_stores, self.settings, self.clock)

    def open_stores(self, wiring: TaskWiring, _cancelled: object) -> Any:
        if self.refusal is not None and wiring.changelogs:
            self.opened_seconds.append(self.clock.monotonic_seconds())
            raise self.refusal
        names = [store.name for store in wiring.stage.stores]
        return self.disks.setdefault(wiring.id, MemoryTaskStores(names, self.clock))

    def half_way(self) -> Worker:
        """A worker whose tasks have open transactions."""
        self.feed(WORDS)
        self.set(commit_interval_seconds=3)
        worker = self.begin()
        for _ in range(6):
            worker.step()
            self.clock.advance(ms=10)
        assert any(task.context.has_sent for task in worker.tasks.values())
        return worker

    def turn(self, worker: Worker, seconds: int) -> None:
        """Let the worker turn its loop for so long."""
        for _ in range(seconds // STEP_SECONDS):
            worker.step()
            self.clock.advance(seconds=STEP_SECONDS)

    def finish(self, worker: Worker) -> None:
        """Nothing is in the way any more: the worker comes to the end by itself."""
        self.turn(worker, 2 * int(PAUSE_SECONDS_MAX))
        self.set(commit_interval_seconds=0)
        self.run_to_the_end(worker)
        worker.stop()
        worker.run()


CHECKS = {"exactly-once": assert_exactly_once, "at-least-once": assert_nothing_lost}


@pytest.mark.parametrize("loses_answers", [False, True], ids=["requests", "answers"])
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_brokers_that_are_away_for_twenty_minutes_are_waited_for(
    guarantee: Guarantee, loses_answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(guarantee)
    worker = machine.half_way()
    machine.outage.loses_answers = loses_answers
    machine.outage.is_on = True
    machine.turn(worker, OUTAGE_SECONDS)
    assert worker.starting, "a task whose transaction was open waits"
    assert not worker.is_quiet, "so a drain waits, too"
    opened = machine.outage.asked.count("writer")
    assert opened < 6 * OUTAGE_SECONDS / PAUSE_SECONDS_MAX * 3, "with back-off"
    assert "Not running: " in caplog.text
    machine.outage.is_on = False
    machine.finish(worker)
    CHECKS[guarantee](machine)


def test_brokers_that_are_away_before_the_first_task_is_open_are_waited_for() -> None:
    machine = Machine()
    machine.feed(WORDS)
    worker = machine.begin()
    machine.outage.is_on = True
    worker.on_assigned([TopicPartition("words", 0)])
    machine.turn(worker, 100)
    assert worker.starting
    worker.on_revoked([TopicPartition("words", 0)])
    assert worker.starting == []
    machine.outage.is_on = False
    machine.finish(worker)
    assert_exactly_once(machine)


def test_a_worker_is_stopped_quickly_while_brokers_are_away() -> None:
    machine = Machine()
    worker = machine.half_way()
    machine.outage.is_on = True
    machine.turn(worker, 10)
    asked = len(machine.outage.asked)
    worker.stop()
    worker.run()
    commits = [what for what in machine.outage.asked[asked:] if what in ("flush", "commit", "send_offsets")]
    assert commits == [], "no task waits for an answer once one has not got any"
    machine.outage.is_on = False
    machine.set(commit_interval_seconds=0)
    successor = machine.worker(CrashPlan())
    machine.run_to_the_end(successor)
    successor.stop()
    successor.run()
    assert_exactly_once(machine)


def test_a_transaction_that_has_run_past_its_time_out_costs_its_epoch() -> None:
    machine = Machine()
    worker = machine.half_way()
    machine.clock.advance(seconds=3_600)
    machine.turn(worker, 5)
    machine.finish(worker)
    assert_exactly_once(machine)


def test_a_lock_that_a_sibling_holds_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.feed(WORDS)
    machine.refusal = LOCKED
    worker = machine.begin()
    machine.turn(worker, OUTAGE_SECONDS)
    assert len(worker.starting) == 3
    assert "process 4711" in caplog.text
    tried = machine.opened_seconds[::3]
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses[0] <= 2 * PAUSE_SECONDS_MIN + STEP_SECONDS
    assert LOCKED_SECONDS_MAX / 2 <= max(pauses) <= LOCKED_SECONDS_MAX + STEP_SECONDS
    machine.refusal = None
    machine.finish(worker)
    assert_exactly_once(machine)
    assert "Task number-0 goes on after" in caplog.text


def test_a_partition_that_is_revoked_while_its_lock_is_waited_for_is_let_go() -> None:
    machine = Machine()
    machine.refusal = LOCKED
    worker = machine.begin()
    machine.turn(worker, 60)
    waiting = [lead for lead in worker._starting.primaries() if lead.topic != "words"]
    worker.on_revoked(waiting)
    tried = len(machine.opened_seconds)
    machine.turn(worker, 60)
    assert worker.starting == []
    assert len(machine.opened_seconds) == tried


def test_a_store_that_turns_out_damaged_is_opened_again() -> None:
    machine = Machine()
    worker = machine.half_way()
    task = next(task for task in worker.tasks.values() if task.wiring.changelogs)
    disk = machine.disks.pop(task.wiring.id)

    def damaged(*_: object, **__: object) -> None:
        raise CORRUPT

    disk.apply = disk.close = damaged  # type: ignore[method-assign]
    machine.turn(worker, 10)
    assert machine.disks[task.wiring.id] is not disk, "another one was made in its place"
    machine.finish(worker)
    assert_exactly_once(machine)


def test_a_store_that_is_damaged_again_and_again_ends_the_worker() -> None:
    machine = Machine()
    machine.refusal = CORRUPT
    worker = machine.begin()
    with pytest.raises(StateCorrupt):
        machine.turn(worker, 60)
    assert len(set(machine.opened_seconds)) == DAMAGES_MAX


@pytest.mark.parametrize(
    "refusal",
    [
        DiskFull("full", action="make room."),
        StateCorrupt("an image", action="another."),
        ImagesUnreachable("no", action="look."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_person_must_decide_ends_the_worker(refusal: StateflowError) -> None:
    machine = Machine()
    machine.refusal = refusal
    worker = machine.begin()
    with pytest.raises(type(refusal)):
        machine.turn(worker, 60)


def test_that_many_tasks_wait_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.feed(WORDS)
    worker = machine.half_way()
    machine.outage.is_on = True
    caplog.clear()
    machine.turn(worker, OUTAGE_SECONDS)
    lines = [record for record in caplog.records if record.name.endswith("retries")]
    assert OUTAGE_SECONDS / 120 <= len(lines) <= OUTAGE_SECONDS / 60 + 8
    assert all(record.levelno == logging.WARNING for record in lines)


def test_the_poll_of_a_member_that_hears_no_broker_does_not_end_it() -> None:
    machine = Machine()
    worker = machine.begin()
    machine.outage.is_on = True
    with pytest.raises(BrokerUnreachable):
        worker._group.poll(1, 0)
    machine.turn(worker, 10)
    assert "poll" in machine.outage.asked
