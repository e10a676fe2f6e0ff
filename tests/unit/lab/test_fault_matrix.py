"""The plan of the crash matrix, its oracle and its report: complete, drawn from one seed, and never too kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from stateflow.errors import ConfigError
from stateflow.failpoints import phase_of, worker_points
from stateflow.lab.faults.matrix.case import Result
from stateflow.lab.faults.matrix.checks import Findings, _check_outputs, _check_state, _wrong_keys
from stateflow.lab.faults.matrix.operations import Operation, Operations, Oracle, Tally
from stateflow.lab.faults.matrix.plan import (
    NETWORK_FAULTS,
    NETWORK_POINTS,
    PROCESS_FAULTS,
    Case,
    full_plan,
    only,
    quick_plan,
)
from stateflow.lab.faults.matrix.situations import SITUATIONS
from stateflow.lab.faults.planted.bugs import BUGS, Catch
from stateflow.lab.faults.report import StudyReport
from stateflow.lab.faults.simulation.simulate import SimulationReport


def test_the_full_plan_has_each_point_with_each_fault_three_times() -> None:
    counted = Counter((case.point, case.fault) for case in full_plan(1))
    for point in worker_points():
        for fault in PROCESS_FAULTS:
            assert counted[point, fault] >= 3, (point, fault)
    for point in NETWORK_POINTS:
        for network_fault in NETWORK_FAULTS:
            assert counted[point, network_fault] >= 3


def test_the_quick_plan_has_every_phase_with_each_fault() -> None:
    cases = quick_plan(1)
    assert {(case.phase, case.fault) for case in cases} >= {
        (phase_of(point), fault) for point in worker_points() for fault in PROCESS_FAULTS
    }
    assert {case.fault for case in cases} >= set(NETWORK_FAULTS)


def test_a_plan_is_drawn_from_its_seed() -> None:
    assert quick_plan(5) == quick_plan(5)
    assert quick_plan(5) != quick_plan(6)
    seeds = [case.seed for case in full_plan(5)]
    assert len(set(seeds)) == len(seeds)


def test_every_case_of_the_quick_plan_can_be_run_again() -> None:
    full = set(full_plan(5))
    assert set(quick_plan(5)) <= full
    for case in quick_plan(5):
        assert case in only(full_plan(5), [f"{case.point}:{case.fault}"])


def test_every_case_has_a_situation() -> None:
    assert {case.situation for case in full_plan(1)} == {*SITUATIONS, "network"}
    assert Case("something.new", "kill", 0, 1).situation == "running"


def test_only_names_points_and_phases_and_nothing_else() -> None:
    assert {case.phase for case in only(full_plan(1), ["flush"])} == {"flush"}
    assert {case.fault for case in only(full_plan(1), ["flush.before:stop"])} == {"stop"}
    with pytest.raises(ConfigError, match="nowhere"):
        only(full_plan(1), ["nowhere:kill"])


# --- the oracle -----------------------------------------------------------------------------------------------

OPERATIONS = [Operation("a", "p0", 1), Operation("a", "p1", 1), Operation("a", "p0", 2)]
OUTPUTS = ["a p0 1 1", "a p1 1 2", "a p0 2 3"]


@pytest.fixture
def oracle() -> Oracle:
    made = Oracle()
    made.add(OPERATIONS)
    return made


def outputs(oracle: Oracle, found: list[str], *, exact: bool = True) -> tuple[int, int, int]:
    findings = Findings()
    _check_outputs({"a": found}, oracle, findings, exact=exact)
    return findings.lost, findings.twice, findings.silent


def test_right_outputs_are_right(oracle: Oracle) -> None:
    assert outputs(oracle, OUTPUTS) == (0, 0, 0)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (OUTPUTS[:-1], (1, 0, 0)),
        ([*OUTPUTS, OUTPUTS[0]], (0, 1, 0)),
        ([OUTPUTS[0], "a p0 2 2", "a p1 1 3"], (0, 0, 1)),
        (["a p0 1 1", "a p1 1 2", "a p0 2 4"], (0, 0, 1)),
        ([*OUTPUTS, "a p2 9 4"], (0, 0, 1)),
    ],
    ids=["lost", "twice", "disordered", "wrong count", "never sent"],
)
def test_wrong_outputs_are_found(oracle: Oracle, found: list[str], wanted: tuple[int, int, int]) -> None:
    assert outputs(oracle, found) == wanted


def test_at_least_once_may_repeat_and_must_not_lose(oracle: Oracle) -> None:
    assert outputs(oracle, [*OUTPUTS, "a p0 2 4"], exact=False) == (0, 1, 0)
    assert outputs(oracle, OUTPUTS[1:], exact=False) == (1, 0, 0)


def state(total: int, digest: int | None = None, last: int = 2) -> Mapping[object, object]:
    digest = Oracle({"a": OPERATIONS}).tallies()["a"].digest if digest is None else digest
    return {"a": [total, digest], ("a", "p0"): last, ("a", "p1"): 1}


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (state(3), (0, 0, 0)),
        (state(2), (1, 0, 0)),
        (state(4), (0, 1, 0)),
        (state(3, digest=0), (0, 0, 1)),
        (state(3, last=1), (0, 0, 1)),
        ({}, (3, 0, 1)),
    ],
    ids=["right", "lost", "twice", "disordered", "stale", "empty"],
)
def test_state_is_compared_to_the_last_operation(
    oracle: Oracle, held: dict[object, object], wanted: tuple[int, int, int]
) -> None:
    findings = Findings()
    _check_state("here", held, oracle, findings, exact=True)
    assert (findings.lost, findings.twice, findings.silent) == wanted


def test_a_store_may_only_hold_what_its_changelog_says_at_its_position_or_later() -> None:
    rows = [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"), (3, b"b", None)]
    assert _wrong_keys({b"a": b"1", b"b": b"1"}, rows, 2) == []
    assert _wrong_keys({b"a": b"2", b"b": b"1"}, rows, 2) == [], "content was flushed, its position was not"
    assert _wrong_keys({b"a": b"1", b"b": b"1"}, rows, 3) == [b"a"]
    assert _wrong_keys({b"a": b"2", b"b": b"1", b"c": b"1"}, rows, 4) == [b"b", b"c"]


def test_the_hash_of_a_key_tells_the_order_of_its_operations() -> None:
    first, second = OPERATIONS[:2]
    assert Tally().after(first).after(second) != Tally().after(second).after(first)


def test_operations_have_ids_of_their_own_and_come_from_the_seed() -> None:
    taken = list(Operations(3).take(200))
    assert taken == list(Operations(3).take(200))
    assert len({(operation.producer, operation.number) for operation in taken}) == 200


# --- the report -----------------------------------------------------------------------------------------------


def result(
    point: str = "flush.before", *, injected: bool = True, stuck: str = "", findings: Findings | None = None
) -> Result:
    case = Case(point, "kill", 0, 1)
    return Result(case, injected, findings or Findings(), stuck, (-9, 0), 1.0)


def test_what_was_not_injected_is_told_and_not_counted() -> None:
    body = StudyReport(
        mode="quick", seed=1, results=[result(), result("flush.after", injected=False)]
    ).as_dict()
    assert body["injected"] == {"kill": {"flush": 1}}
    assert body["not_injected"] == ["flush.after:kill #0"]
    assert (body["runs"], body["injected_least"]) == (2, 0)


def test_how_often_the_rarest_fault_struck_is_told() -> None:
    results = [result(), result(), result("flush.after"), replace(result("flush.after"), repeated=True)]
    assert StudyReport(mode="full", seed=1, results=results).as_dict()["injected_least"] == 2
    assert StudyReport(mode="full", seed=1, results=results[:3]).as_dict()["injected_least"] == 1


def test_only_a_case_that_found_nothing_is_run_again() -> None:
    assert result(injected=False).says_nothing
    assert result(injected=False, stuck="late").says_nothing
    assert not result(stuck="late").says_nothing
    assert not result(injected=False, findings=Findings(lost=1)).says_nothing
    assert not result(injected=False, findings=Findings(silent=1)).says_nothing


@pytest.mark.parametrize(
    "bad",
    [
        result(stuck="it hangs"),
        result(findings=Findings(lost=1)),
        result(findings=Findings(twice=1)),
        result(findings=Findings(silent=1)),
    ],
    ids=["stuck", "lost", "twice", "silent"],
)
def test_anything_wrong_fails_the_study(bad: Result) -> None:
    assert StudyReport(mode="quick", seed=1, results=[result()]).is_clean
    assert not StudyReport(mode="quick", seed=1, results=[result(), bad]).is_clean


def test_what_the_simulation_judged_is_told() -> None:
    simulation = SimulationReport(seeds=3, batchings=7, judged=Counter(late=2, windows=5))
    body = StudyReport(mode="quick", seed=1, simulation=simulation).as_dict()
    assert (body["batchings"], body["late"], body["windows"]) == (7, 2, 5)
    nothing = StudyReport(mode="quick", seed=1).as_dict()
    assert (nothing["batchings"], nothing["late"], nothing["windows"]) == (0, 0, 0)


def test_the_planted_bugs_are_different_ones() -> None:
    assert len({bug.name for bug in BUGS}) == len({bug.plant for bug in BUGS}) == 27


def test_a_planted_bug_that_escapes_fails_the_study() -> None:
    caught = Catch("zombie_retries", True, "lost", "outputs", "", 3, 4, 0.1)
    assert StudyReport(mode="quick", seed=1, planted=[caught]).is_clean
    body = StudyReport(mode="quick", seed=1, planted=[replace(caught, caught=False)])
    assert not body.is_clean
    assert (body.as_dict()["planted_bugs_caught"], body.as_dict()["planted_bugs_total"]) == (0, 1)
