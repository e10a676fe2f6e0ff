"""A barrier on the control topic that nobody of ours asked for: state goes nowhere, and the application goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import BARRIER_KEY, encode_item
from stateflow.catalog.model import BarrierEntry
from stateflow.checkpoint.locations import AllowedLocations
from stateflow.errors import ConfigError, SavepointFailed
from stateflow.savepoint import lookup
from stateflow.savepoint.create import CreateSettings, create
from tests.sim.savepoint_world import STEPS_MAX, World
from tests.sim.test_savepoints import words

APP = "chain"


@pytest.fixture
def world(quick_path: Path) -> World:
    world = World(quick_path, 1, "exactly-once")
    world.feed(words(60))
    world.begin("w0", "w1")
    world.run()
    return world


def plant(world: World, location: str, savepoint: str = "mine") -> None:
    """A barrier as a stranger would write it."""
    now_ms = world.clock.now_ms()
    entry = BarrierEntry(
        barrier_id=1,
        savepoint=savepoint,
        location=location,
        generation=0,
        state="open",
        requested_ms=now_ms,
        deadline_ms=now_ms + 3_600_000,
    )
    ControlTopic(world.cluster, APP).put(lambda _: dict([encode_item(entry)]))


def until_aborted(world: World) -> None:
    """Until a worker has heard of the barrier, and refused it: a worker listens a few times a second only."""
    for _ in range(STEPS_MAX):
        barrier = ControlTopic(world.cluster, APP).load().barrier
        if barrier is not None and barrier.state == "aborted":
            return
        world.turn()
    raise AssertionError("the barrier is not refused")


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_state_is_copied_to_no_place_that_the_settings_do_not_name(world: World, quick_path: Path) -> None:
    plant(world, str(quick_path / "stolen"))
    world.waiting = words(100, 2)
    world.run()
    assert not (quick_path / "stolen").exists()
    barrier = ControlTopic(world.cluster, APP).load().barrier
    assert barrier is not None
    assert barrier.state == "aborted"
    assert "stolen" in (barrier.reason or "")
    assert world.state() == world.expected()
    savepoint = world.create()
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.stop()


@pytest.mark.parametrize("name", ["../../stolen", "a/../../../stolen", "/stolen"])
def test_a_name_does_not_leave_the_location(
    world: World, quick_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = set(files_in(quick_path))
    with caplog.at_level(logging.WARNING):
        plant(world, str(world.place), name)
        world.waiting = words(100, 2)
        world.run()
    assert not [path for path in set(files_in(quick_path)) - before if "stolen" in str(path)]
    assert "cannot be the name of a savepoint" in caplog.text
    assert world.state() == world.expected()
    world.create("after")
    world.stop()


def test_two_bad_bytes_end_no_worker_and_no_savepoint(world: World, caplog: pytest.LogCaptureFixture) -> None:
    ControlTopic(world.cluster, APP).put(lambda _: {BARRIER_KEY: b"\xff\xfe", b"savepoint/x": b"\xff\xfe"})
    world.waiting = words(100, 2)
    world.run()
    assert world.state() == world.expected()
    assert "'cut' at offset" in caplog.text
    savepoint = world.create()
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.stop()


def test_whoever_asks_for_a_place_that_workers_refuse_is_told(world: World, quick_path: Path) -> None:
    with pytest.raises(SavepointFailed, match="the settings of a worker do not allow its location"):
        create(
            world.cluster,
            APP,
            "elsewhere",
            str(quick_path / "elsewhere"),
            world.clock,
            settings=CreateSettings(timeout_seconds=60),
            pause=world.turn,
        )
    assert files_in(quick_path / "elsewhere") == []
    world.stop()


def test_a_listed_place_is_neither_read_nor_deleted_unless_it_is_allowed(
    world: World, quick_path: Path
) -> None:
    world.create("one")
    control = ControlTopic(world.cluster, APP)
    listed = control.load().savepoints["one"]
    forged = msgspec.structs.replace(listed, location=str(quick_path / "forged"))
    control.put(lambda _: dict([encode_item(forged)]))
    allowed = AllowedLocations([str(world.place)])
    with pytest.raises(ConfigError, match="settings here do not allow"):
        lookup.open_listed(forged, APP, world.clock, allowed)
    with pytest.raises(ConfigError, match="--from"):
        lookup.delete(world.cluster, APP, "one", world.clock, allowed, grace_ms=0)
    assert control.load().savepoints["one"] == forged
    world.stop()


def test_leftovers_are_removed_only_where_it_is_allowed(world: World, quick_path: Path) -> None:
    """The maker of a savepoint removes what an abandoned one left: nowhere else than the settings say."""
    victim = quick_path / "victim" / APP / "savepoints" / "mine.1"
    victim.mkdir(parents=True)
    (victim / "precious").write_text("x")
    plant(world, str(quick_path / "victim"))
    until_aborted(world)
    world.create("next")
    assert (victim / "precious").exists()
    world.stop()
