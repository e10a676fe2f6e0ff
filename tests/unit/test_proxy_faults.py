"""Which requests a fault matches, from the bytes of requests."""

from __future__ import annotations

import struct

import pytest

from stateflow.testing.proxy_faults import END_TXN, Action, Fault, RequestHead


def end_txn(
    version: int, transactional_id: str, *, commits: bool, client_id: str | None = "rdkafka"
) -> bytes:
    """An EndTxn request as a client sends it, without its length."""
    name = transactional_id.encode()
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    head = struct.pack(">hhih", END_TXN, version, 77, length) + client
    producer = struct.pack(">qh?", 4001, 3, commits)
    if version >= 3:
        return head + b"\x00" + bytes([len(name) + 1]) + name + producer + b"\x00"
    return head + struct.pack(">h", len(name)) + name + producer


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
