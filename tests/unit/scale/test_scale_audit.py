"""The hash of a set of entries, and the comparison of two sides."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stateflow.record import TopicPartition
from stateflow.scale.audit import HASH_MODULUS, AuditResult, Tally, compare, entry_hash

ENTRIES = st.dictionaries(st.binary(max_size=8), st.binary(max_size=8), max_size=20)


def tally(entries: dict[bytes, bytes]) -> Tally:
    return Tally(len(entries), sum(entry_hash(k, v) for k, v in entries.items()) % HASH_MODULUS)


@given(ENTRIES, st.randoms(use_true_random=False))
def test_neither_order_nor_grouping_matters(entries: dict[bytes, bytes], rng: random.Random) -> None:
    items = list(entries.items())
    rng.shuffle(items)
    cut = rng.randint(0, len(items))
    assert tally(dict(items[:cut])) + tally(dict(items[cut:])) == tally(entries)


@given(ENTRIES, ENTRIES)
def test_different_sets_differ(one: dict[bytes, bytes], other: dict[bytes, bytes]) -> None:
    assert (tally(one) == tally(other)) == (one == other)


def test_keys_and_values_do_not_run_into_each_other() -> None:
    assert entry_hash(b"ab", b"c") != entry_hash(b"a", b"bc")
    assert entry_hash(b"a", b"") != entry_hash(b"a", None)


def result(partition: int, tallies: list[Tally], store: str = "s") -> AuditResult:
    return AuditResult(store, TopicPartition("t", partition), tuple(tallies))


def test_equal_sides_are_equal_in_every_row() -> None:
    before = [result(0, [Tally(2, 5), Tally(1, 9)]), result(1, [Tally(1, HASH_MODULUS - 1), Tally()])]
    after = [result(0, [Tally(3, 4), Tally()]), result(1, [Tally(), Tally(1, 9)])]
    rows = compare(before, after)
    assert [(row.store, row.partition, row.keys_before, row.hash_before) for row in rows] == [
        ("s", 0, 3, 4),
        ("s", 1, 1, 9),
    ]
    assert all(row.equal for row in rows)


def test_a_stray_makes_its_partition_unequal_even_if_its_hash_is_zero() -> None:
    before = [result(0, [Tally(1, 7), Tally(1, 0)])]
    after = [result(0, [Tally(1, 7), Tally(1, 0)]), result(1, [Tally(), Tally()])]
    rows = compare(before, after)
    assert [row.equal for row in rows] == [False, False]
    assert after[0].strays == 1


def test_a_partition_that_was_not_read_counts_as_empty() -> None:
    rows = compare([result(0, [Tally(), Tally(1, 3)])], [result(0, [Tally(), Tally()])])
    assert [(row.equal, row.keys_after) for row in rows] == [(True, 0), (False, 0)]
