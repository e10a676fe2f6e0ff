"""Each planted bug is found by the simulation, and is gone from the code afterwards."""

from __future__ import annotations

import pytest

from stateflow.checkpoint import planner
from stateflow.lab.faults.planted import planting_writers
from stateflow.lab.faults.planted.bugs import BUGS, PlantedBug, bug_named, hunt, planted
from stateflow.lab.faults.simulation.history import generate
from stateflow.lab.faults.simulation.simulate import replay, run
from stateflow.lab.quiet import quiet

pytestmark = pytest.mark.slow

FOUND_BY = {
    "position_apart": 59726,
    "iterator_status_ignored": 1941,
    "flush_before_commit": 59014,
    "unflushed_offsets": 3923,
    "unflushed_records": 6508,
    "key_misrouted": 7161,
    "idle_for_ever": 70663,
    "event_time_forgotten": 1068,
    "claims_ignored": 3304,
    "claimed_in_passing": 3304,
}
"""Seeds to begin with, for bugs that the first ones do not show: those that the hunt from 0 ended at.
Where one has lost its effect, because the simulation draws something else now, the hunt goes on behind it.
"""


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_caught(bug: PlantedBug) -> None:
    catch = hunt(bug, seed_first=FOUND_BY.get(bug.name, 0))
    assert catch.caught, f"{bug.name} was not found in {catch.seeds_tried} seeds"
    assert catch.seed is not None
    with quiet():
        assert not run(generate(catch.seed, bug.profile)).findings, (
            "without the bug the seed breaks no promise"
        )


def test_a_proof_keeps_a_replaced_owner_out_where_nothing_else_does() -> None:
    catch = hunt(bug_named("proved_by_another_member"))
    assert catch.seed is not None
    with planting_writers.claims_ignored(), quiet():
        assert not run(generate(catch.seed, "crash")).findings, "its client has come back all the same"


def test_a_bug_is_planted_only_inside_its_scope() -> None:
    real = planner.plan_store
    with planted(bug_named("reset_to_earliest")):
        assert planner.plan_store is not real
    assert planner.plan_store is real


def test_a_failure_is_made_short_and_replays() -> None:
    bug = bug_named("zombie_retries")
    catch = hunt(bug)
    assert catch.seed is not None
    with planted(bug):
        whole = replay(catch.seed, bug.profile, shortest=False)
        first, second = replay(catch.seed, bug.profile), replay(catch.seed, bug.profile)
    assert first.trace_hash == second.trace_hash
    assert 0 < len(first.history.steps) < len(whole.history.steps)
    assert first.findings
    assert f"seed {catch.seed}: crash" in first.text()
