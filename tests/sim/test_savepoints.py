"""Savepoints of a running application: every word before the offset vector is in them exactly once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.sim.savepoint_world import World

WORDS = b"to be or not to be that is the question whether tis nobler in the mind to suffer".split()


def words(count: int, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.choice(WORDS) for _ in range(count)]


def running(folder: Path, seed: int) -> World:
    """Two workers in the midst of their work, with more input to come."""
    world = World(folder, seed)
    world.feed(words(60, seed))
    world.begin("w0", "w1")
    for _ in range(world.random.randrange(5, 60)):
        world.turn()
    world.waiting = words(120, seed + 1)
    return world


@pytest.mark.parametrize("seed", range(12))
def test_a_cut_through_a_running_application_is_exact(tmp_path: Path, seed: int) -> None:
    world = running(tmp_path, seed)
    savepoint = world.create()
    assert world.contents(savepoint) == world.expected(world.vector(savepoint))
    world.run()
    assert world.state() == world.expected()
    world.stop()


@pytest.mark.parametrize("seed", range(6))
def test_restored_as_another_application_it_comes_to_the_same_end(tmp_path: Path, seed: int) -> None:
    world = running(tmp_path, seed)
    savepoint = world.create()
    world.run()
    world.stop()
    restored = world.restore(savepoint, "other")
    assert restored.generation == 0
    world.begin("w0", "w1", app="other")
    world.run("other")
    world.stop()
    assert world.state("other") == world.expected()
    assert world.state() == world.expected(), "the first application is as it was"


@pytest.mark.parametrize("seed", range(6))
def test_the_same_application_goes_back_to_the_cut(tmp_path: Path, seed: int) -> None:
    world = running(tmp_path, seed)
    savepoint = world.create()
    world.run()
    world.stop()
    restored = world.restore(savepoint)
    assert restored.generation == 1
    world.begin("w0", "w1")
    world.run()
    world.stop()
    assert world.state() == world.expected()
