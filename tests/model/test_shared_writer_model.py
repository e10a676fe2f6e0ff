"""One writer for all tasks of a worker, searched whole: which fences and waits a takeover needs.

KIP-447's way, where the group's generation fences, holds only while no EndTxn is repeated by something else than the
client, and a takeover may wait as long as a transaction may be open. With the claims log of ``docs/decisions/0024`` it
holds there, too, and waits for nobody. Without any one of its parts the search finds a broken promise.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateflow.lab.protocol.search import Outcome
from stateflow.lab.protocol.shared import explore_shared
from stateflow.lab.protocol.shared_rules import SharedFaults, SharedProtocol

pytestmark = pytest.mark.slow

GENERATION = SharedProtocol()
CLAIMS = SharedProtocol(claims=True, shows_generation=False)
"""Without the proof of membership, which is sent all the same: the claims do not rest on it."""
BOTH = pytest.mark.parametrize("protocol", [GENERATION, CLAIMS], ids=["generation", "claims"])

WAITS = "t0 waits for ever"


def holds(protocol: SharedProtocol, faults: SharedFaults, *, outputs_once: bool = True) -> None:
    outcome = explore_shared(protocol, faults, outputs_once=outputs_once)
    assert outcome.broken is None, "\n".join((*outcome.history, outcome.broken or ""))
    assert outcome.states > 50, "the search went nowhere"


def broken(protocol: SharedProtocol, faults: SharedFaults, *, outputs_once: bool = True) -> Outcome:
    outcome = explore_shared(protocol, faults, outputs_once=outputs_once)
    assert outcome.broken is not None
    return outcome


@BOTH
@pytest.mark.parametrize(
    "faults",
    [
        SharedFaults(moves=2),
        SharedFaults(throws=1, slow_markers=1),
        SharedFaults(throws=1, retries=1),
        SharedFaults(throws=1, timeouts=1, inputs=1),
        SharedFaults(crashes=1, timeouts=1),
        SharedFaults(throws=1, crashes=1, inputs=1),
        SharedFaults(moves=1, throws=1, inputs=1),
        SharedFaults(moves=1, slow_markers=1, tasks=2, inputs=1),
        SharedFaults(crashes=1, tasks=2, inputs=1),
        SharedFaults(throws=1, stateless=True, inputs=2),
    ],
    ids=str,
)
def test_state_and_outputs_are_right_through_every_takeover(
    protocol: SharedProtocol, faults: SharedFaults
) -> None:
    holds(protocol, faults)


# --- the group's generation as the fence --------------------------------------------------------------


def test_the_generation_must_be_proved() -> None:
    broken(replace(GENERATION, shows_generation=False), SharedFaults(throws=1))


def test_a_transaction_without_offsets_fences_nobody() -> None:
    """At least once, where offsets follow the transaction; and an epoch whose tasks have nothing to commit."""
    broken(replace(GENERATION, without_offsets="A"), SharedFaults(throws=1))


def test_stable_offsets_are_not_enough_for_the_changelog() -> None:
    """The markers of one transaction reach the group first; and a zombie's open one hides what came behind it."""
    lets_go = replace(GENERATION, waits_for_end=False)
    late = broken(lets_go, SharedFaults(throws=1, slow_markers=1))
    assert late.broken == "t0 goes on at input 1, but its state is {}"
    assert "a marker of A0 reaches group-t0" in late.history
    hidden = broken(lets_go, SharedFaults(throws=1, crashes=1))
    assert not any("marker" in step for step in hidden.history)


def test_only_a_task_without_a_changelog_needs_the_wait_for_offsets() -> None:
    """Whose offsets are taken has all its records in the changelog, before the generation ends."""
    careless = replace(GENERATION, waits_for_offsets=False)
    holds(careless, SharedFaults(throws=1, slow_markers=1))
    twice = broken(careless, SharedFaults(throws=1, stateless=True))
    assert twice.broken == "outputs are visible twice: ['t0:0', 't0:0']"


def test_who_was_thrown_out_must_not_go_on_with_its_transaction() -> None:
    broken(replace(GENERATION, gives_up_when_lost=False), SharedFaults(throws=1))


def test_who_is_thrown_out_while_it_restores_must_ask_before_it_answers_readers() -> None:
    broken(replace(GENERATION, verifies_membership=False), SharedFaults(throws=1))


def test_a_takeover_waits_until_a_dead_workers_transaction_times_out() -> None:
    stuck = broken(GENERATION, SharedFaults(crashes=1, abandoned_time_out=False))
    assert stuck.broken == WAITS


def test_the_generation_does_not_see_what_others_repeat() -> None:
    """What speaks against KIP-447's way: a zombie's commit record comes to be seen behind its successor's."""
    outcome = broken(GENERATION, SharedFaults(throws=1, duplicates=1, inputs=3), outputs_once=False)
    assert "a late EndTxn(commit) of A0 arrives" in outcome.history


# --- claims as the fence ------------------------------------------------------------------------------


def test_claims_keep_the_state_right_whatever_others_repeat() -> None:
    holds(CLAIMS, SharedFaults(throws=1, duplicates=1, inputs=3), outputs_once=False)
    holds(CLAIMS, SharedFaults(crashes=1, duplicates=1), outputs_once=False)


def test_a_task_that_begins_after_others_needs_a_commit_record_first() -> None:
    """A repeated EndTxn of the others' transaction shows half of its first one, and nothing tells that it is half."""
    faults = SharedFaults(duplicates=1, tasks=2, inputs=1, apart=True)
    outcome = broken(CLAIMS, faults, outputs_once=False)
    assert "a late EndTxn(commit) of A0 arrives" in outcome.history
    holds(replace(CLAIMS, proves_first=True), faults, outputs_once=False)
    holds(replace(CLAIMS, proves_first=True), replace(faults, duplicates=0, crashes=1))


@pytest.mark.parametrize("workers", ["A", "B", "AB"])
def test_claims_need_no_offsets(workers: str) -> None:
    """So the guarantee may be changed between two lives, there and back."""
    holds(replace(CLAIMS, without_offsets=workers), SharedFaults(throws=1))


def test_claims_need_no_generation() -> None:
    holds(replace(CLAIMS, gives_up_when_lost=False), SharedFaults(throws=1))


def test_with_claims_a_takeover_waits_for_no_time_out() -> None:
    holds(CLAIMS, SharedFaults(throws=1, inputs=1, abandoned_time_out=False))
    holds(CLAIMS, SharedFaults(crashes=1, tasks=2, inputs=1, abandoned_time_out=False))


def test_who_fences_before_it_claims_misses_who_claims_meanwhile() -> None:
    broken(replace(CLAIMS, claims_first=False), SharedFaults(throws=1))


def test_claims_do_not_replace_the_wait_for_markers_of_who_let_go() -> None:
    """Its claim is released, so nobody fences it; its last markers may still be on their way."""
    faults = SharedFaults(moves=1, slow_markers=1)
    broken(replace(CLAIMS, waits_for_end=False), faults)
    careless = replace(CLAIMS, waits_for_offsets=False)
    holds(careless, faults)
    broken(careless, replace(faults, stateless=True))


# --- both ---------------------------------------------------------------------------------------------


@BOTH
def test_a_task_leaves_only_between_transactions(protocol: SharedProtocol) -> None:
    broken(replace(protocol, commits_before_moving=False), SharedFaults(moves=1, tasks=2, inputs=1))


@BOTH
def test_a_commit_that_was_sent_twice_ends_the_writers_life(protocol: SharedProtocol) -> None:
    outcome = broken(replace(protocol, new_life_after_retry=False), SharedFaults(throws=1, retries=1))
    assert any("sent twice" in step for step in outcome.history)


def test_a_lost_marker_holds_up_a_takeover_until_its_own_writer_aborts_there() -> None:
    """KAFKA-20734. Only who knows the writer's id can do it, and only the claims tell."""
    assert broken(GENERATION, SharedFaults(throws=1, lost_markers=1)).broken == WAITS
    faults = SharedFaults(crashes=1, lost_markers=1)
    assert broken(CLAIMS, faults).broken == WAITS
    holds(replace(CLAIMS, sweeps=True), faults)
