from __future__ import annotations

import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.partitioner import (
    HASH_MAX,
    murmur2,
    partition_of,
    partitions_of,
    plain_routing_hashes,
    routing_hash,
    routing_hashes,
)


def test_murmur2_is_unsigned_32_bits() -> None:
    assert murmur2(b"21") == (-973932308) & 0xFFFFFFFF
    assert routing_hash(b"21") == (-973932308) & HASH_MAX


def test_partition_is_hash_modulo_count() -> None:
    assert partition_of(b"abc", 7) == 479470107 % 7


@given(st.lists(st.binary(max_size=80), max_size=200))
def test_many_keys_side_by_side_have_the_hashes_that_each_has_alone(keys: list[bytes]) -> None:
    assert routing_hashes(keys) == plain_routing_hashes(keys) == [routing_hash(key) for key in keys]
    assert partitions_of(keys, 7) == [partition_of(key, 7) for key in keys]


@given(st.integers(0, 70), st.integers(1, 60), st.randoms(use_true_random=False))
def test_many_keys_of_one_length(length: int, count: int, draw: random.Random) -> None:
    keys = [draw.choice([draw.randbytes(length), b"\xff" * length, bytes(length)]) for _ in range(count)]
    assert routing_hashes(keys) == plain_routing_hashes(keys) == [routing_hash(key) for key in keys]


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 16, 255, 256, 257, 1000])
@pytest.mark.parametrize("count", [1, 7, 8, 100, 4096, 4097])
def test_many_keys_of_every_length(length: int, count: int) -> None:
    keys = [random.Random(seed).randbytes(length) for seed in range(min(count, 100))] * (count // 100 + 1)
    keys = keys[:count]
    alone = {key: routing_hash(key) for key in set(keys)}
    assert routing_hashes(keys) == plain_routing_hashes(keys) == [alone[key] for key in keys]


def test_hashing_many_keys_needs_no_numpy() -> None:
    code = (
        "import sys; from stateflow.partitioner import routing_hashes; routing_hashes([b'key'] * 1000);"
        " print('numpy' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_no_keys() -> None:
    assert list(routing_hashes([])) == []
