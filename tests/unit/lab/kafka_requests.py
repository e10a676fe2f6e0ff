"""Requests as clients send them, byte for byte."""

from __future__ import annotations

import struct

from stateflow.lab.network.faults import END_TXN


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
