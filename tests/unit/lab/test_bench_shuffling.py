"""ShuffleBench's rules and states, as our side has them; Kafka Streams' are compared by the benchmark itself."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

from stateflow.lab.bench.shuffling import KEY_BYTES, OUTPUT_EVERY, Rules, consumer_of, updated

RING = 1 << 63


def record(place: int, number: int = 0) -> bytes:
    return struct.pack(">QQ", place, number) + b"rest"


def test_a_record_goes_to_so_many_consumers_on_average() -> None:
    draw, rules = random.Random(1), Rules(consumers=500, selectivity=0.2)
    copies = [rules.addressed(draw.randbytes(24)) for _ in range(20_000)]
    assert abs(sum(map(len, copies)) / len(copies) - 0.2) < 0.02
    assert rules.matched_total == sum(map(len, copies))
    assert {len(each) for each in copies} >= {0, 1, 2}


def test_every_place_of_the_ring_belongs_to_the_arcs_that_it_lies_in() -> None:
    consumers, selectivity = 50, 3.0
    rules, width = Rules(consumers, selectivity), int(selectivity / consumers * RING)
    begins: dict[bytes, int] = {}
    draw = random.Random(2)
    places = sorted([0, 1, RING - 1, *(draw.randrange(RING) for _ in range(5_000))])
    found = {place: {consumer_of(copy) for copy in rules.addressed(record(place))} for place in places}
    for before, after in pairwise(places):
        for name in found[after] - found[before]:
            assert name not in begins, "an arc begins once"
            begins[name] = after
    assert len(begins) >= consumers - 1
    for name, begin in begins.items():
        inside = [place for place in places if (place - begin) % RING < width * 0.98]
        assert all(name in found[place] for place in inside), (
            "one that reaches the ring's end goes on at its begin"
        )


def test_the_highest_bit_of_a_record_does_not_matter() -> None:
    rules = Rules(100, 5.0)
    one, other = rules.addressed(record(7)), rules.addressed(record(7 + RING))
    assert [consumer_of(copy) for copy in one] == [consumer_of(copy) for copy in other]


def test_a_copy_is_the_record_behind_its_consumers_key() -> None:
    value = record(3, 4)
    copies = Rules(10, 10.0).addressed(value)
    assert len(copies) == 10
    assert all(copy[KEY_BYTES:] == value and int(consumer_of(copy)) in range(10) for copy in copies)


def test_a_consumer_counts_adds_up_and_tells_with_every_tenth_record() -> None:
    state, told = b"", []
    for time_ms in range(1, 2 * OUTPUT_EVERY + 1):
        state, is_told = updated(state, b"k" * KEY_BYTES + record(0, (1 << 64) - 1), 100 - time_ms)
        told.append(is_told)
    count, total, earliest_ms, latest_ms = struct.unpack(">qQqq", state)
    assert (count, total) == (20, (1 << 64) - 20), "modulo 2^64"
    assert (earliest_ms, latest_ms) == (80, 99), "in whatever order they come"
    assert [number for number, is_told in enumerate(told, 1) if is_told] == [10, 20]
