from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.catalog.model import RoutingEntry
from stateflow.errors import ConfigError
from stateflow.partitioner import HASH_MAX, partition_of, routing_hash
from stateflow.routing import HASH_END, RoutingTable

KEYS = [f"key-{number}".encode() for number in range(4000)]

tables = st.one_of(
    st.integers(1, 40).map(RoutingTable.modulo), st.integers(1, 40).map(RoutingTable.even_ranges)
)


def moved_keys(one: RoutingTable, two: RoutingTable) -> list[bytes]:
    pairs = zip(KEYS, one.partitions_of(KEYS), two.partitions_of(KEYS), strict=True)
    return [key for key, before, after in pairs if before != after]


def test_modulo_is_kafkas_default_partitioner() -> None:
    table = RoutingTable.modulo(6)
    assert table.partitions_of(KEYS) == [partition_of(key, 6) for key in KEYS]


@given(tables)
def test_one_key_and_many_keys_agree_and_stay_in_range(table: RoutingTable) -> None:
    partitions = table.partitions_of(KEYS[:100])
    assert partitions == [table.partition_of(key) for key in KEYS[:100]]
    assert set(partitions) <= set(range(table.partitions))


@given(tables)
def test_survives_the_catalog(table: RoutingTable) -> None:
    import msgspec

    written = msgspec.json.encode(table.entry())
    assert RoutingTable.from_entry(msgspec.json.decode(written, type=RoutingEntry)) == table


def test_even_ranges_share_the_hash_space() -> None:
    table = RoutingTable.even_ranges(7)
    widths = [row.width for row in table.ranges()]
    assert sum(widths) == HASH_END
    assert max(widths) - min(widths) <= 1
    counts = Counter(table.partitions_of(KEYS))
    assert len(counts) == 7
    assert min(counts.values()) > 4000 / 7 * 0.8


def test_edges_of_the_hash_space_have_owners() -> None:
    table = RoutingTable.even_ranges(3)
    assert table.partition_of_hash(0) == 0
    assert table.partition_of_hash(HASH_MAX) == 2


def test_split_moves_half_of_one_partition_and_nothing_else() -> None:
    before = RoutingTable.even_ranges(4)
    after = before.split(2)
    assert after.partitions == 5
    for key in moved_keys(before, after):
        assert (before.partition_of(key), after.partition_of(key)) == (2, 4)
    assert before.moved(after) == pytest.approx(1 / 8, abs=1e-6)


def test_split_of_a_partition_with_several_ranges() -> None:
    once = RoutingTable.even_ranges(3).merge(0, 2)  # partition 0 owns both ends of the space
    twice = once.split(0)
    assert [row.owner for row in twice.ranges()].count(2) >= 1
    assert sum(row.width for row in twice.ranges(2)) == pytest.approx(HASH_END / 3, abs=2)


def test_merge_keeps_every_other_partition_in_place() -> None:
    before = RoutingTable.even_ranges(4)
    after = before.merge(3, 1)
    assert after.partitions == 3
    for key in KEYS:
        expected = 1 if before.partition_of(key) == 3 else before.partition_of(key)
        assert after.partition_of(key) == expected


def test_merge_in_the_middle_renames_the_last() -> None:
    before = RoutingTable.even_ranges(5)
    after = before.merge(0, 2)
    names = {0: 0, 1: 1, 2: 0, 3: 3, 4: 2}
    assert after.partitions_of(KEYS) == [names[owner] for owner in before.partitions_of(KEYS)]


@given(st.integers(2, 12), st.data())
def test_merge_undoes_split(partitions: int, data: st.DataObject) -> None:
    table = RoutingTable.even_ranges(partitions)
    victim = data.draw(st.integers(0, partitions - 1))
    assert table.split(victim).merge(victim, partitions) == table


@given(tables, tables)
def test_moved_share_agrees_with_keys(one: RoutingTable, two: RoutingTable) -> None:
    share = len(moved_keys(one, two)) / len(KEYS)
    assert one.moved(two) == pytest.approx(share, abs=0.06)
    assert one.moved(two) == pytest.approx(two.moved(one))
    assert one.moved(one) == pytest.approx(0)


def test_moved_between_modulo_tables_is_exact() -> None:
    assert RoutingTable.modulo(4).moved(RoutingTable.modulo(6)) == pytest.approx(1 - 4 / 12)


@pytest.mark.parametrize(
    "entry",
    [
        RoutingEntry(kind="modulo", partitions=0),
        RoutingEntry(kind="modulo", partitions=2, bounds=(0,), owners=(0,)),
        RoutingEntry(kind="ranges", partitions=1),
        RoutingEntry(kind="ranges", partitions=1, bounds=(5,), owners=(0,)),
        RoutingEntry(kind="ranges", partitions=2, bounds=(0, 0), owners=(0, 1)),
        RoutingEntry(kind="ranges", partitions=2, bounds=(0, HASH_END), owners=(0, 1)),
        RoutingEntry(kind="ranges", partitions=2, bounds=(0, 9), owners=(0, 0)),
        RoutingEntry(kind="ranges", partitions=2, bounds=(0, 9), owners=(0, 5)),
        RoutingEntry(kind="ranges", partitions=2, bounds=(0, 9), owners=(0,)),
    ],
)
def test_a_table_that_leaves_keys_homeless_is_refused(entry: RoutingEntry) -> None:
    with pytest.raises(ConfigError):
        RoutingTable.from_entry(entry)


@pytest.mark.parametrize("call", [lambda t: t.split(0), lambda t: t.merge(0, 1), lambda t: t.ranges()])
def test_modulo_tables_cannot_be_split_or_merged(call: object) -> None:
    assert callable(call)
    with pytest.raises(ConfigError, match="Repartition to a table of ranges"):
        call(RoutingTable.modulo(4))


def test_unknown_partition_is_refused() -> None:
    with pytest.raises(ConfigError):
        RoutingTable.even_ranges(4).split(4)
    with pytest.raises(ConfigError):
        RoutingTable.even_ranges(4).merge(1, 1)


def test_hash_of_a_key_is_in_its_range() -> None:
    table = RoutingTable.even_ranges(5)
    for key in KEYS[:200]:
        (own,) = table.ranges(table.partition_of(key))
        assert own.hash_first <= routing_hash(key) < own.hash_after
