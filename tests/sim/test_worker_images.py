"""The real worker with real databases: images made while it runs, and used after the machine is lost."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from stateflow.checkpoint.image_making import CHECKPOINT_FOLDER
from stateflow.checkpoint.objects import DirectoryObjects
from stateflow.runtime.process.launch import rocks_opener
from stateflow.runtime.snapshots.imaging import Imaging
from stateflow.store.base import StorePosition
from stateflow.store.resources import RocksResources
from tests.sim.counting import APP, STORE
from tests.sim.imaged import TASKS, WAIT_SECONDS, WORDS, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.feed(WORDS)
    return machine


def test_a_lost_machine_begins_with_the_images_and_reads_only_what_came_after(machine: Machine) -> None:
    machine.run(machine.have_images(1))
    machine.clock.advance(seconds=600)
    machine.run(machine.have_images(2))
    machine.feed(WORDS[:5])
    machine.run()
    machine.settings = replace(machine.settings, images=None)
    whole = replay_slots(machine)
    machine.settings = replace(machine.settings, images=str(machine.place))
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed
    assert 0 < sum(machine.restored.values()) < whole / 2


def replay_slots(machine: Machine) -> int:
    """Slots that a restore without images reads."""
    machine.lose()
    machine.run()
    assert machine.state() == machine.fed
    return sum(machine.restored.values())


def test_an_image_is_made_when_the_newest_is_old_enough_and_the_oldest_is_removed(machine: Machine) -> None:
    machine.run(machine.have_images(1))
    machine.run()
    assert machine.have_images(1)(), "workers that start often make no more images"
    for count in (2, 2):
        before = {task: machine.images(task).names()[0] for task in TASKS}
        machine.clock.advance(seconds=600)
        machine.run(lambda before=before: all(machine.images(t).names()[0] > before[t] for t in TASKS))  # type: ignore[misc]
        machine.run()
        assert machine.have_images(count)()
    for task in TASKS:
        images = machine.images(task)
        assert all(images.verify(images.load(name)) == [] for name in images.names())


def test_a_task_to_which_nothing_happens_is_not_imaged_again(machine: Machine) -> None:
    (wiring,) = [task for task in machine.wiring.tasks() if task.id == TASKS[0]]
    (topic_id,) = wiring.topic_ids.values()
    images = machine.images(TASKS[0])
    with Imaging(
        machine.cluster, DirectoryObjects(machine.place), machine.settings, machine.clock
    ) as imaging:
        opener = imaging.opener(
            rocks_opener(machine.cluster, machine.settings, RocksResources(), machine.clock)
        )
        stores = opener(wiring, lambda: False)

        def image_of(offset_next: int) -> None:
            stores.apply({}, {STORE: StorePosition(topic_id, offset_next, applied_ms=1)})
            stores.flush()
            imaging.submit(lambda: None).result(WAIT_SECONDS)  # uploads go one after the other
            machine.clock.advance(seconds=600)

        for offset_next in (5, 5, 5):
            image_of(offset_next)
        assert len(images.names()) == 1
        image_of(6)
        assert [images.load(name).stores[STORE].offset_next for name in images.names()] == [6, 5]
        assert not (machine.settings.state_dir / APP / "g0" / TASKS[0] / CHECKPOINT_FOLDER).exists()
        stores.close()


def test_no_checkpoint_stays_on_the_local_disk(machine: Machine) -> None:
    machine.run(machine.have_images(1))
    left = list(machine.settings.state_dir.glob(f"{APP}/*/*/{CHECKPOINT_FOLDER}"))
    assert left == []
    manifest = machine.images("number-0").load(machine.images("number-0").names()[0])
    assert manifest.stores[STORE].offset_next > 0
    assert list(manifest.inputs) == ["numbered-by-word-repartition[0]"]


class Broken(DirectoryObjects):
    """A place that takes nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.refused = threading.Event()

    def put(self, name: str, source: BinaryIO) -> None:
        self.refused.set()
        raise OSError(f"connection reset while {name} was sent")


def test_a_place_that_takes_nothing_is_told_and_the_work_goes_on(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(machine.place)
    with caplog.at_level(logging.WARNING):
        machine.run(broken.refused.is_set, broken)
    assert "no image was made: connection reset" in caplog.text
    assert machine.state() == machine.fed
    machine.clock.advance(seconds=600)
    machine.run(machine.have_images(1))


CLOSING_SECONDS = 2.5
"""By then the worker that is told to stop has come to close its tasks, which waits for an upload up to ten seconds."""


def task_of(name: str) -> str:
    """The task whose image an object belongs to."""
    _app, _generation, task, *_rest = name.split("/")
    return task


class Slow(DirectoryObjects):
    """A place whose first upload ends only when it is allowed to, and that takes none of another task beside it.

    Tasks are closed one by one here: the other's image could be whole by the time that its own task is closed.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun, self.may_end = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._first_task: str | None = None

    def put(self, name: str, source: BinaryIO) -> None:
        with self._lock:
            self._first_task = self._first_task or task_of(name)
        if task_of(name) != self._first_task:
            raise OSError("one task at a time")
        self.begun.set()
        assert self.may_end.wait(WAIT_SECONDS)
        super().put(name, source)


def test_closing_a_task_stops_its_upload_and_leaves_no_image(machine: Machine) -> None:
    slow = Slow(machine.place)

    def begun() -> bool:
        if slow.begun.is_set():
            threading.Timer(CLOSING_SECONDS, slow.may_end.set).start()
            return True
        return False

    machine.run(begun, slow)
    assert machine.have_images(0)()
    assert not list(machine.settings.state_dir.glob(f"{APP}/*/*/{CHECKPOINT_FOLDER}"))
    assert machine.state() == machine.fed
    machine.run(machine.have_images(1))
