"""Workers with standby copies die and hang at every step of copying, placing and taking over: the state stays exact.

Each failpoint that concerns copies, placing, opening or committing kills the worker that reaches it, with power cut.
And whole random lives: workers join, leave, hang and die in an order drawn from a seed.
"""

from __future__ import annotations

import random

import pytest

from stateflow.failpoints import POINTS
from tests.sim.fleet import SESSION_MS, Fleet, crashing, crashing_turn
from tests.sim.test_standby_fleet import WORDS, assert_copies_are_equal, assert_exactly_once

pytestmark = pytest.mark.slow

PHASES = ("standby", "placing", "open", "takeover", "restore", "commit", "handover", "flush")
POINTS_HERE = [point for point in POINTS if point.partition(".")[0] in PHASES]
SEEDS = [*range(12), 124, 217]  # the last two: two workers opened a task under decisions of different age
TURNS = 260


def life(point: str, hit: int) -> bool:
    """A fleet of two, a third joins, one is killed, and who survived dies at the point; True if it did."""
    fleet = Fleet(standby_lag_acceptable=20)
    for name in ("a", "b"):
        fleet.join(name)
    fleet.feed(WORDS[:200])
    fleet.settle()
    victim = fleet.nodes["b"]
    with crashing(victim, point, hit) as died:
        joined = fleet.join("c")
        for turn in range(120):
            if turn == 10:
                fleet.feed(WORDS[:100])
            if turn == 40:
                fleet.nodes["a"].kill()
                fleet.clock.advance(ms=SESSION_MS)  # the group notices at once
            crashing_turn(fleet)
        assert joined.alive
    again = fleet.join("d")
    fleet.feed(WORDS[:50])
    fleet.settle()
    assert again.running
    assert_exactly_once(fleet)
    assert_copies_are_equal(fleet)
    return bool(died)


@pytest.mark.parametrize("hit", [1, 3])
@pytest.mark.parametrize(
    "point", [point for point in POINTS_HERE if point.startswith(("standby", "placing"))]
)
def test_killed_while_copying_placing_and_taking_over(point: str, hit: int) -> None:
    died = life(point, hit)
    assert died or hit > 1, "the point is never reached: the test shows nothing"


@pytest.mark.parametrize(
    "point", [point for point in POINTS_HERE if not point.startswith(("standby", "placing"))]
)
def test_killed_at_any_step_beside_copies(point: str) -> None:
    life(point, 2)
    assert point in POINTS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_life_ends_exact(seed: int) -> None:
    dice = random.Random(seed)
    fleet = Fleet(standby_replicas=dice.choice([1, 2]), standby_lag_acceptable=dice.choice([0, 20, 500]))
    names = iter(f"{'named-' if dice.random() < 0.3 else ''}n{number}" for number in range(1000))
    for _ in range(3):
        fleet.join(next(names))
    for _ in range(TURNS):
        roll = dice.random()
        if roll < 0.05:
            fleet.feed(WORDS[: dice.randrange(1, 80)])
        elif roll < 0.07 and len(fleet.alive) < 5:
            gone = [node for node in fleet.nodes.values() if not node.alive]
            fleet.join(dice.choice(gone).name if gone and dice.random() < 0.5 else next(names))
        elif roll < 0.085 and len(fleet.alive) > 1:
            dice.choice(fleet.alive).kill(power_cut=dice.random() < 0.5)
        elif roll < 0.09 and len(fleet.alive) > 1:
            dice.choice(fleet.alive).stop()
        elif roll < 0.1:
            fleet.clock.advance(ms=dice.randrange(12_000))  # the whole fleet was suspended
        fleet.turn()
    fleet.settle()
    assert_exactly_once(fleet)
