"""Numbers folded in the core: written as MessagePack and Kafka write them, refused where Python must do it."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import stateflow as sf
from stateflow.codec.evolving import MAGIC
from stateflow.native.folds import Folding, Folds, Format, Number
from stateflow.native.loading import core

pytestmark = pytest.mark.skipif(core() is None, reason="the native core is not in use")

EDGES = sorted({sign * (1 << bits) + more for bits in range(62) for sign in (1, -1) for more in (-1, 0, 1)})
LIKE_AN_ENVELOPE = sf.Integer.decode(MAGIC + bytes(3))
FLOATS = [0.0, -0.0, 0.1, -1.5e-300, 2.0**61, 5e-324, 3.0]


def folds(operation: Any, kept_as: Format = "msgpack", *, windows: bool = False, **options: Any) -> Folds:
    """Nothing folded so far."""
    used = core()
    assert used is not None
    return Folds(used, Folding(operation, **options), kept_as, of_windows=windows)


def nothing(keys: list[bytes]) -> list[bytes | None]:
    """An empty disk."""
    return [None] * len(keys)


def real(number: Number) -> float:
    """A number that is no mean."""
    assert isinstance(number, int | float)
    return float(number)


@pytest.mark.parametrize("number", [*FLOATS, float("inf"), -1.7e308, 1.7e308, float("nan"), None])
def test_what_is_set_is_kept_as_kafka_writes_it(number: float | None) -> None:
    one = folds("assign", "double", integers=False, floats=True)
    assert one.add([b"a", b"b"], [1.0, number], nothing) == (2, 2)
    data = None if number is None else sf.Float.encode(number)
    assert one.columns() == ([b"a", b"b"], [sf.Float.encode(1.0), data])
    read = folds("assign", "double", integers=False, floats=True)
    found = read.numbers([b"a", b"b"], lambda _asked: one.columns()[1])
    assert found is not None
    assert (None if found[1] is None else sf.Float.encode(real(found[1]))) == data


@pytest.mark.parametrize("value", ["1", True, 1.0, 1 << 63, -(1 << 63) - 1, LIKE_AN_ENVELOPE])
def test_what_cannot_be_set_refuses_its_batch(value: Any) -> None:
    one = folds("assign", "long")
    assert one.add([b"a", b"b"], [(1 << 63) - 1, -(1 << 63)], nothing) == (2, 2)
    before = one.columns()
    assert one.add([b"c", b"a"], [1, value], nothing) is None
    assert one.columns() == before
    assert before[1] == [sf.Integer.encode((1 << 63) - 1), sf.Integer.encode(-(1 << 63))]


@pytest.mark.parametrize("kept_as", ["long", "msgpack"])
def test_integers_are_written_and_read_as_the_codecs_do(kept_as: Format) -> None:
    codec = sf.Integer if kept_as == "long" else sf.MsgPackOf(int)
    keys = [b"%d" % number for number in EDGES]
    written = folds("sum", kept_as)
    assert written.add(keys, EDGES, nothing) == (len(keys), sum(map(len, keys)))
    assert dict(zip(*written.columns(), strict=True)) == {
        key: codec.encode(number) for key, number in zip(keys, EDGES, strict=True)
    }
    disk = {key: codec.encode(number) for key, number in zip(keys, EDGES, strict=True)}
    read = folds("sum", kept_as)
    assert read.numbers(keys, lambda asked: [disk[key] for key in asked]) == EDGES


def test_floats_are_written_and_read_as_the_codec_does() -> None:
    keys = [b"%d" % number for number in range(len(FLOATS))]
    written = folds("most", integers=False, floats=True)
    written.add(keys, FLOATS, nothing)
    columns = written.columns()
    assert columns == (keys, [sf.MsgPack.encode(number) for number in FLOATS])
    read = folds("most", integers=False, floats=True)
    found = read.numbers(keys, lambda _asked: columns[1])
    assert found is not None
    assert [math.copysign(1, real(number)) for number in found if number is not None] == [
        math.copysign(1, n) for n in FLOATS
    ]
    assert found == FLOATS


def test_means_are_counts_and_sums_as_the_codec_writes_them() -> None:
    codec = sf.mean().codec()
    one, counts = folds("mean", "mean", floats=True), [1, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 2]
    pairs = [(count, total) for count in counts for total in (*EDGES[::17], *FLOATS)]
    keys = [b"%04d" % number for number in range(len(pairs))]
    disk = dict(zip(keys, map(codec.encode, pairs), strict=True))
    assert one.numbers(keys, lambda asked: [disk[key] for key in asked]) == pairs
    assert one.add([*keys, b"new"], [0] * len(keys) + [1.5], nothing) is not None
    assert one.columns() == (
        [*keys, b"new"],
        [codec.encode((count + 1, total + 0)) for count, total in pairs] + [codec.encode((1, 1.5))],
    )
    assert dict(zip(*one.take(), strict=True))[b"new"] == (1, 1.5)


@pytest.mark.parametrize(
    "pair",
    [
        *(b"", b"\x05", b"\x92", b"\x92\x01", b"\x92\xff\x01", b"\x92\x01\xc0", b"\x93\x01\x01\x01"),
        b"\x92\xcb" + bytes(8) + b"\x01",
        b"\x92\xcf" + bytes(3) + b"\x01" + bytes(4) + b"\x01",
        b"\x92\xce\x01",
    ],
)
def test_what_is_no_mean_on_disk_is_refused(pair: bytes) -> None:
    one = folds("mean", "mean", floats=True)
    assert one.add([b"a"], [1], lambda _keys: [pair]) is None
    assert len(one) == 0


def test_a_mean_of_as_many_as_can_be_counted_refuses_one_more() -> None:
    one, codec = folds("mean", "mean", floats=True), sf.mean().codec()
    last = codec.encode(((1 << 32) - 1, 0))
    assert one.add([b"a"], [1], lambda _keys: [last]) is None
    assert one.numbers([b"a"], nothing) == [((1 << 32) - 1, 0)]


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc0", b"\xc3", b"\xa1a", b"\x01\x01", b"\xcc", b"\xcf" + b"\xff" * 8, b"\xcb\x00", b"\x90"],
)
def test_what_is_no_number_on_disk_is_refused(data: bytes) -> None:
    one = folds("sum", floats=True)
    assert one.add([b"a", b"b"], [1, 1], lambda _keys: [None, data]) is None
    assert len(one) == 0
    assert one.add([b"a"], [2], nothing) == (1, 1), "the other key goes on"
    assert one.columns() == ([b"a"], [b"\x02"])


@pytest.mark.parametrize(
    "value", [None, "1", 1 << 62, -(1 << 62) - 9, 1 << 64, float("nan"), 1e300, [1], object()]
)
def test_a_batch_that_is_refused_changes_nothing(value: Any) -> None:
    one = folds("sum", floats=True)
    one.add([b"a", b"b"], [1, 2], nothing)
    before = one.columns()
    assert one.add([b"a", b"c", b"a", b"b"], [5, 6, value, 7], nothing) is None
    assert (one.columns(), len(one)) == (before, 2)


def test_windows_are_told_once_and_by_their_time() -> None:
    one = folds("count", "long", windows=True)
    one.known_from(0)
    draw, wanted = random.Random(1), set[bytes]()
    for _ in range(5):
        keys = [
            b"%d" % draw.randrange(9) + draw.randrange(5).to_bytes(8, "big") + bytes(4) for _ in range(30)
        ]
        fresh = {key[-12:-4] + key for key in keys} - wanted
        assert one.add(keys, None, lambda _keys: pytest.fail("nothing can be there")) is not None
        assert one.take_opened() == sorted(fresh)
        assert one.take_opened() == []
        wanted |= fresh
        one.columns()
        one.committed(1 << 20)


def test_many_windows_are_told_by_their_time_and_then_by_their_key() -> None:
    one, draw = folds("sum", windows=True), random.Random(7)
    one.known_from(0)
    keys = {
        b"%016d" % draw.randrange(500) + draw.randrange(1 << 33).to_bytes(8, "big") + bytes(4)
        if draw.random() < 0.5
        else b"%016d" % draw.randrange(500) + (60_000 * draw.randrange(9)).to_bytes(8, "big") + bytes(4)
        for _ in range(3_000)
    }
    assert one.add(sorted(keys, key=lambda _: draw.random()), [1] * len(keys), nothing) is not None
    assert one.take_opened() == sorted(key[-12:-4] + key for key in keys)
    assert one.columns() == (sorted(keys), [b"\x01"] * len(keys))


def test_a_window_older_than_those_remembered_and_one_among_them_are_found() -> None:
    one, asked = folds("sum", windows=True), list[bytes]()
    one.known_from(0)

    def window(name: bytes, start_ms: int) -> bytes:
        return name + start_ms.to_bytes(8, "big") + bytes(4)

    def stored(keys: list[bytes]) -> list[bytes | None]:
        asked.extend(keys)
        return [None] * len(keys)

    first, late = [window(b"%03d" % number, 60_000) for number in range(200)], window(b"late", 0)
    one.add(first, [1] * 200, stored)
    one.take_opened()
    one.columns()
    one.committed(4 * 20_000)  # more is held than a quarter: these are the old ones from now on
    one.add([first[0], window(b"new", 120_000), late], [2, 3, 4], stored)
    assert one.take_opened() == sorted(
        [(0).to_bytes(8, "big") + late, (120_000).to_bytes(8, "big") + window(b"new", 120_000)]
    )
    assert one.columns() == ([first[0], late, window(b"new", 120_000)], [b"\x03", b"\x04", b"\x03"])
    assert asked == []


@pytest.mark.parametrize("suffix", [b"", b"-", b"\x00" * 12])
def test_a_suffix_is_part_of_each_key(suffix: bytes) -> None:
    joined, whole = folds("sum"), folds("sum")
    for size in (1, 5, 40):
        keys = [b"x" * (number % size) + b"%d" % number for number in range(3 * size)]
        whole_keys = [key + suffix for key in keys]
        told = joined.add(keys, list(range(len(keys))), nothing, suffix)
        assert told == whole.add(whole_keys, list(range(len(keys))), nothing)
        assert joined.columns() == whole.columns()
    assert joined.numbers(whole_keys, nothing) == whole.numbers(whole_keys, nothing)


def test_what_is_remembered_keeps_to_its_room_and_is_looked_for_again() -> None:
    for room_bytes in (0, 16 << 10, 1 << 20):
        one, disk = folds("sum", windows=True), dict[bytes, bytes | None]()
        one.known_from(0)
        totals, draw = dict[bytes, int](), random.Random(room_bytes)

        def stored(keys: list[bytes], disk: dict[bytes, bytes | None] = disk) -> list[bytes | None]:
            assert keys == sorted(set(keys)), "sorted keys are fastest"
            return [disk.get(key) for key in keys]

        for epoch in range(40):
            keys = [
                b"%04d" % draw.randrange(500)
                + max(0, epoch - draw.randrange(3)).to_bytes(8, "big")
                + bytes(4)
                for _ in range(300)
            ]
            one.add(keys, [1] * len(keys), stored)
            one.take_opened()
            for key in keys:
                totals[key] = totals.get(key, 0) + 1
            disk |= dict(zip(*one.columns(), strict=True))
            one.committed(room_bytes)
            assert one.size_bytes <= room_bytes
        assert disk == {key: sf.MsgPack.encode(total) for key, total in totals.items()}
