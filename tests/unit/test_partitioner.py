from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow import partitioner
from stateflow.partitioner import HASH_MAX, murmur2, partition_of, routing_hash, routing_hashes


def test_murmur2_is_unsigned_32_bits() -> None:
    assert murmur2(b"21") == (-973932308) & 0xFFFFFFFF
    assert routing_hash(b"21") == (-973932308) & HASH_MAX


def test_partition_is_hash_modulo_count() -> None:
    assert partition_of(b"abc", 7) == 479470107 % 7


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=200))
def test_the_vector_form_equals_the_plain_form(keys: list[bytes]) -> None:
    expected = [routing_hash(key) for key in keys]
    assert partitioner._routing_hashes_numpy(keys) == expected
    assert routing_hashes(keys) == expected


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 255, 256, 257, 1000])
def test_many_keys_of_every_length(length: int) -> None:
    keys = [random.Random(seed).randbytes(length) for seed in range(100)]
    assert routing_hashes(keys) == [routing_hash(key) for key in keys]


def test_without_numpy_the_same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [str(number).encode() for number in range(500)]
    with_numpy = routing_hashes(keys)
    monkeypatch.setattr(partitioner, "_has_numpy", lambda: False)
    assert routing_hashes(keys) == with_numpy


def test_no_keys() -> None:
    assert list(routing_hashes([])) == []
