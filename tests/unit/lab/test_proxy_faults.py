"""Which requests a fault matches, from the bytes of requests."""

from __future__ import annotations

import struct

import pytest

from stateflow.lab.network.faults import END_TXN, Action, Fault, RequestHead
from tests.unit.lab.kafka_requests import end_txn


@pytest.mark.parametrize("version", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("client_id", ["rdkafka", "", None])
def test_reads_whose_transaction_ends_and_how(version: int, commits: bool, client_id: str | None) -> None:
    frame = end_txn(version, "app-0-by-word-3", commits=commits, client_id=client_id)
    assert RequestHead.parse(frame) == RequestHead(END_TXN, version, 77, "app-0-by-word-3", commits)


def test_other_requests_are_read_as_far_as_their_head() -> None:
    frame = struct.pack(">hhih", 0, 9, 5, 2) + b"me" + b"\x00records"
    assert RequestHead.parse(frame) == RequestHead(0, 9, 5)


@pytest.mark.parametrize(
    ("fault", "matches"),
    [
        (Fault(Action.HOLD), True),
        (Fault(Action.HOLD, transactional_id="a"), True),
        (Fault(Action.HOLD, transactional_id="b"), False),
        (Fault(Action.HOLD, commits=True), True),
        (Fault(Action.HOLD, commits=False), False),
        (Fault(Action.HOLD, api_key=22), False),
    ],
    ids=str,
)
def test_a_fault_matches_what_it_was_made_for(fault: Fault, matches: bool) -> None:
    assert fault.matches(RequestHead.parse(end_txn(1, "a", commits=True))) is matches
