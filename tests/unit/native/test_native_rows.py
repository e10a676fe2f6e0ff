"""The newest records in the core, beside the same in Python: what one sends the other takes in, and the sums agree."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateflow.catalog.model import RoutingEntry
from stateflow.changelog.format import RESERVED_KEY_PREFIX, TOUCH_KEY
from stateflow.native.rows import HasHeaders, NativeRows, rows_core
from stateflow.record import RecordBatch, TopicPartition
from stateflow.scale import newest_digests
from stateflow.scale.audit import entry_hash
from stateflow.scale.newest_digests import Digests, tallies_by_partition
from stateflow.scale.newest_rows import AnyRows, PlainRows, Rows, rows_of_part
from stateflow.scale.placement import Placement

SOURCE = TopicPartition("log", 3)
USED = rows_core()
pytestmark = pytest.mark.skipif(USED is None, reason="the native core is not in use")

keys = st.one_of(st.none(), st.just(TOUCH_KEY), st.binary(max_size=3), st.binary(min_size=250, max_size=300))
values = st.one_of(st.none(), st.just(b""), st.binary(max_size=40), st.binary(min_size=250, max_size=70_000))
records = st.lists(st.tuples(keys, values, st.integers(-1, 1 << 45)), max_size=60)


def native() -> NativeRows:
    assert USED is not None
    return NativeRows(USED, RESERVED_KEY_PREFIX)


def batch(rows: Iterable[tuple[bytes | None, bytes | None, int]]) -> RecordBatch:
    rows = list(rows)
    return RecordBatch(
        SOURCE,
        list(range(len(rows))),
        [time_ms for _, _, time_ms in rows],
        [key for key, _, _ in rows],
        [value for _, value, _ in rows],
    )


def sent(
    rows: AnyRows, slices: int, wanted: Iterable[int]
) -> dict[int, list[tuple[bytes, bytes | None, int | None]]]:
    """What the pieces say, the time of deletions left out: the core does not keep it."""
    found = {}
    for number, piece in rows.pieces(slices, set(wanted)):
        told = msgspec.msgpack.decode(piece, type=Rows)
        assert told.headers == []
        times_ms = [
            None if value is None else time_ms
            for value, time_ms in zip(told.values, told.timestamps_ms, strict=True)
        ]
        found[number] = list(zip(told.keys, told.values, times_ms, strict=True))
    return found


@settings(deadline=None, max_examples=150)
@given(some=records, more=records, slices=st.integers(1, 7), wanted=st.sets(st.integers(0, 6)))
def test_pieces_say_the_same(
    some: list[tuple[bytes | None, bytes | None, int]],
    more: list[tuple[bytes | None, bytes | None, int]],
    slices: int,
    wanted: set[int],
) -> None:
    plain, core = PlainRows(), native()
    for each in (some, more):
        assert plain.add(batch(each)) == core.add(batch(each))
    assert sent(core, slices, wanted) == sent(plain, slices, wanted)
    assert {
        number: msgspec.msgpack.decode(piece, type=Digests) for number, piece in core.digests(slices, 300)
    } == {number: msgspec.msgpack.decode(piece, type=Digests) for number, piece in plain.digests(slices, 300)}
    core.clear()
    assert len(core) == 0
    assert sent(core, slices, wanted) == {}


@settings(deadline=None, max_examples=100)
@given(
    some=records,
    more=records,
    parts=st.integers(1, 4),
    native_first=st.booleans(),
)
def test_either_takes_in_what_either_sends(
    some: list[tuple[bytes | None, bytes | None, int]],
    more: list[tuple[bytes | None, bytes | None, int]],
    parts: int,
    native_first: bool,
) -> None:
    senders: list[AnyRows] = [native(), PlainRows()] if native_first else [PlainRows(), native()]
    inbox = []
    for sender, each in zip(senders, (some, more), strict=True):
        sender.add(batch(each))
        inbox += [piece for _, piece in sender.pieces(2, {1})]
    expected: dict[bytes, tuple[bytes | None, int]] = {}
    for key, value, time_ms in [*some, *more]:
        if key is not None and not key.startswith(RESERVED_KEY_PREFIX) and zlib.crc32(key) % 2 == 1:
            expected[key] = value, time_ms
    found: dict[bytes, tuple[bytes | None, int]] = {}
    for part in range(parts):
        for rows in rows_of_part(inbox, 2, part, parts):
            for key, value, time_ms in zip(rows.keys, rows.values, rows.timestamps_ms, strict=True):
                assert key not in found
                assert zlib.crc32(key) % (2 * parts) // 2 == part
                found[key] = value, time_ms
    assert found == {key: row for key, row in expected.items() if row[0] is not None}


def test_digests_are_summed_up_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    routing = RoutingEntry(kind="modulo", partitions=4)
    inbox = []
    for partition in (0, 0, 1, 200):
        rows = PlainRows() if partition else native()
        rows.add(
            batch(
                (b"%d" % draw.randrange(500), draw.choice([None, draw.randbytes(30)]), at)
                for at in range(400)
            )
        )
        inbox += [piece for _, piece in rows.digests(1, partition)]
    found = list(tallies_by_partition(inbox, lambda: Placement("plain", routing)))
    monkeypatch.setattr(newest_digests, "rows_core", lambda: None)
    assert found == list(tallies_by_partition(inbox, lambda: Placement("plain", routing)))
    assert [partition for partition, _ in found] == [0, 1, 200]
    assert all(tally.keys > 0 and tally.hash > 0 for _, tallies in found for tally in tallies)


@pytest.mark.parametrize("value_bytes", [0, 1, 115, 116, 117, 118, 243, 244, 245, 1000, 70_000])
def test_hashes_at_the_ends_of_blocks(value_bytes: int) -> None:
    rows, key, value = native(), b"eight by", bytes(index % 251 for index in range(value_bytes))
    rows.add(batch([(key, value, 1)]))
    ((_, piece),) = rows.digests(1, 0)
    assert msgspec.msgpack.decode(piece, type=Digests).hashes == [entry_hash(key, value)]


def test_headers_are_left_to_python() -> None:
    with_headers = batch([(b"a", b"1", 5), (b"b", b"2", 6)])
    with_headers.headers = [(("who", b"me"),), ()]
    with pytest.raises(HasHeaders):
        native().add(with_headers)
    plain, core = PlainRows(), native()
    plain.add(with_headers)
    core.add(batch([(b"a", b"0", 4), (b"c", b"3", 7)]))
    inbox = [piece for rows in (core, plain) for _, piece in rows.pieces(1, {0})]
    (rows,) = rows_of_part(inbox, 1, 0, 1)
    assert dict(zip(rows.keys, rows.values, strict=True)) == {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert dict(zip(rows.keys, rows.headers, strict=True)) == {b"a": (("who", b"me"),), b"b": (), b"c": ()}


@pytest.mark.parametrize("cut", range(40))
def test_what_is_no_piece_is_not_taken_in(cut: int) -> None:
    rows = native()
    rows.add(batch([(b"key", b"value", 5), (b"gone", None, 6)]))
    ((_, piece),) = rows.pieces(1, {0})
    ((_, digests),) = rows.digests(1, 2)
    assert len(piece) > 40
    with pytest.raises(HasHeaders):
        native().take(piece[:cut], 1, 0, 1)
    with pytest.raises(msgspec.DecodeError):
        next(rows_of_part([piece[:cut]], 1, 0, 1))
    if cut < len(digests):
        with pytest.raises((AssertionError, HasHeaders)):
            list(
                tallies_by_partition(
                    [digests[:cut]], lambda: Placement("plain", RoutingEntry(kind="modulo", partitions=1))
                )
            )
