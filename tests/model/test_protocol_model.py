"""The commit protocol, searched whole. Without any one of its parts the search finds a broken promise."""

from __future__ import annotations

import pytest

from stateflow.lab.protocol.model import Faults, Protocol, explore
from stateflow.lab.protocol.search import Outcome

pytestmark = pytest.mark.slow

MARKER_ONLY = Protocol(commit_records=False, rewrites=False)
DEFENDED = Protocol(new_epoch_after_retry=True)
PARANOID = Protocol(new_epoch_after_commit=True)


def holds(outcome: Outcome) -> None:
    assert outcome.broken is None, "\n".join((*outcome.history, outcome.broken or ""))
    assert outcome.states > 100, "the search went nowhere"


# --- Kafka's marker alone ---------------------------------------------------------------------------


def test_the_marker_is_enough_while_no_request_is_late() -> None:
    holds(
        explore(MARKER_ONLY, Faults(retries=0, crashes=2, aborts=1, cleans_undecided=True), outputs_once=True)
    )


def test_the_marker_alone_fails_against_one_late_request() -> None:
    """The counterexample of docs/exactly-once.md."""
    outcome = explore(MARKER_ONLY, Faults(loses_store=False), outputs_once=False)
    assert outcome.broken == "after takeover the input goes on at 1, but the state is {a: [0], b: [1]}"
    assert outcome.history == (
        "takeover at input 0",
        "process 1 input(s)",
        "by-key gets b'a'",
        "output gets b'\\x00'",
        "all acknowledged, send the commit",
        "group gets b'offset'",
        "EndTxn(commit), sent twice: one copy is late",
        "apply to the local store",
        "process 1 input(s)",
        "by-key gets b'b'",
        "a late EndTxn(commit) arrives",
        "crash",
    )


# --- the first defence: no request of ours is late when the next transaction begins -----------------


def test_a_new_epoch_after_each_retry_needs_nothing_else() -> None:
    protocol = Protocol(commit_records=False, rewrites=False, new_epoch_after_retry=True)
    holds(explore(protocol, Faults(retries=2, crashes=2, aborts=1, cleans_undecided=True), outputs_once=True))


def test_but_it_cannot_see_what_others_repeat() -> None:
    protocol = Protocol(commit_records=False, rewrites=False, new_epoch_after_retry=True)
    outcome = explore(protocol, Faults(retries=0, duplicates=1), outputs_once=False)
    assert outcome.broken is not None
    assert "EndTxn(commit), repeated by the network" in outcome.history


# --- the second defence: commit records -------------------------------------------------------------


@pytest.mark.parametrize(
    "faults",
    [
        Faults(retries=2, crashes=1),
        Faults(retries=1, duplicates=1, crashes=1),
        Faults(retries=1, crashes=2),
        Faults(retries=1, crashes=1, aborts=1),
        Faults(retries=1, crashes=1, changelogs=2, inputs=2),
    ],
    ids=str,
)
def test_commit_records_keep_the_state_right(faults: Faults) -> None:
    holds(explore(Protocol(), faults, outputs_once=False))


def test_both_defences_together() -> None:
    holds(explore(DEFENDED, Faults(retries=1, duplicates=1, crashes=1), outputs_once=False))
    holds(explore(DEFENDED, Faults(retries=2, crashes=2, cleans_undecided=True), outputs_once=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        Faults(retries=1, crashes=1, changelogs=2),
        Faults(retries=1, crashes=1, inputs=4),
    ],
    ids=str,
)
def test_commit_records_in_larger_worlds(faults: Faults) -> None:
    holds(explore(Protocol(), faults, outputs_once=False))


def test_commit_records_do_not_save_other_peoples_view_of_the_outputs() -> None:
    outcome = explore(Protocol(), Faults(), outputs_once=True)
    assert outcome.broken == "outputs are visible twice: [0, 1, 1]"


def test_orphaned_keys_must_be_written_again() -> None:
    outcome = explore(Protocol(rewrites=False), Faults(crashes=2), outputs_once=False)
    assert outcome.broken is not None
    assert "a reader finds" in outcome.broken


@pytest.mark.parametrize("changelogs", [1, 2])
def test_commit_records_must_wait_for_everything_else(changelogs: int) -> None:
    protocol = Protocol(flush_before_record=False)
    outcome = explore(protocol, Faults(changelogs=changelogs), outputs_once=False)
    assert outcome.broken is not None


def test_the_groups_offset_must_wait_for_the_commit_records() -> None:
    outcome = explore(Protocol(flush_before_offset=False), Faults(), outputs_once=False)
    assert outcome.broken == "the group is at input 2, but the state only at 1"


def test_the_cleaner_must_not_overtake_the_decision() -> None:
    """An orphaned record that hides a true one from the cleaner cannot be undone: hence the first defence."""
    outcome = explore(Protocol(), Faults(cleans_undecided=True), outputs_once=False)
    assert outcome.broken is not None
    assert outcome.history[-1].startswith("the cleaner runs")


# --- the third: paranoid ----------------------------------------------------------------------------


def test_a_new_epoch_after_each_commit_withstands_everything() -> None:
    faults = Faults(retries=1, duplicates=1, crashes=2, aborts=1, cleans_undecided=True)
    holds(explore(PARANOID, faults, outputs_once=True))


# --- what the proof rests on ------------------------------------------------------------------------


def test_a_new_owner_must_fence_the_old_one() -> None:
    outcome = explore(PARANOID, Faults(retries=0, fences=False), outputs_once=False)
    assert outcome.broken is not None


def test_a_producer_that_has_aborted_must_not_go_on() -> None:
    protocol = Protocol(new_epoch_after_abort=False)
    outcome = explore(protocol, Faults(crashes=0, aborts=1), outputs_once=False)
    assert outcome.broken is not None
    assert "a late EndTxn(abort) arrives" in outcome.history
