"""Hashes and partitions as kafka-clients 4.3.1 computes them.

``murmur2.json`` holds the results of ``Utils.murmur2`` and ``BuiltInPartitioner.partitionForKey``; keys in
hex.
"""

from __future__ import annotations

import json
from pathlib import Path

from stateflow.partitioner import murmur2, partition_of, routing_hashes
from stateflow.routing import RoutingTable

ROWS = json.loads((Path(__file__).parent / "murmur2.json").read_text())
KEYS = [bytes.fromhex(row["key"]) for row in ROWS]


def test_hash_of_one_key() -> None:
    for row, key in zip(ROWS, KEYS, strict=True):
        assert murmur2(key) == row["murmur2"] & 0xFFFFFFFF
        assert partition_of(key, 6) == row["partition_of_6"]
        assert partition_of(key, 50) == row["partition_of_50"]


def test_hashes_of_many_keys() -> None:
    assert len(KEYS) >= 64  # enough for the vector form
    assert routing_hashes(KEYS) == [row["murmur2"] & 0x7FFFFFFF for row in ROWS]
    short = [(row, key) for row, key in zip(ROWS, KEYS, strict=True) if len(key) <= 256] * 2
    assert routing_hashes([key for _, key in short]) == [row["murmur2"] & 0x7FFFFFFF for row, _ in short]


def test_modulo_table() -> None:
    assert RoutingTable.modulo(6).partitions_of(KEYS) == [row["partition_of_6"] for row in ROWS]
