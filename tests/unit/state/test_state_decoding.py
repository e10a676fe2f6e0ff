"""Rows of every layout as a person reads them."""

from __future__ import annotations

import pytest

from stateflow.catalog.model import KeyLayout, StoreEntry, StoreKind
from stateflow.codec.base import Codec
from stateflow.codec.scalar import Bytes, Integer, String
from stateflow.codec.structured import Json
from stateflow.codec.timed import Timed, TimedCodec
from stateflow.errors import ConfigError
from stateflow.state.decoding import Row, StoreDecoder
from stateflow.state.layout import index_bytes, prefixed_key, window_key
from stateflow.store.base import Change
from stateflow.store.memory import MemoryReader


def decoder(
    kind: StoreKind, layout: KeyLayout, value: dict[str, object], key: Codec[object] | None = None
) -> StoreDecoder:
    described = String.describe() if key is None else key.describe()
    entry = StoreEntry(name="s", stage="m", kind=kind, layout=layout, key_codec=described, value_codec=value)
    return StoreDecoder(entry)


def reader(*changes: Change) -> MemoryReader:
    found = MemoryReader()
    found.change(changes)
    return found


def test_plain_values() -> None:
    plain = decoder("value", "plain", Integer.describe())
    store = reader((b"a", Integer.encode(1)), (b"ab", Integer.encode(2)))
    assert list(plain.rows_of(store, b"a")) == [Row("a", 1)]
    assert list(plain.rows_of(store, b"x")) == []
    assert list(plain.rows(store)) == [Row("a", 1), Row("ab", 2)]


def test_values_with_a_time_to_live_tell_when_they_were_written() -> None:
    timed = TimedCodec(Json)
    plain = decoder("value", "plain", timed.describe())
    store = reader((b"a", timed.encode(Timed(77, {"x": 1}))))
    assert list(plain.rows(store)) == [Row("a", {"x": 1}, written_ms=77)]


def test_windows_of_one_key_and_not_of_its_neighbours() -> None:
    windows = decoder("window", "window", Integer.describe())
    keys = [b"a", b"a\x00", b"a\x00\x00\x00\x00", b"ab", b""]
    store = reader(
        *((window_key(key, start), Integer.encode(start)) for key in keys for start in (0, 60_000))
    )
    for key in keys:
        text = key.decode()
        assert list(windows.rows_of(store, key)) == [
            Row(text, 0, window_start_ms=0),
            Row(text, 60_000, window_start_ms=60_000),
        ]
    assert len(list(windows.rows(store))) == 2 * len(keys)


def test_lists_show_elements_and_not_their_ends() -> None:
    lists = decoder("list", "prefixed", Json.describe())
    store = reader(
        (prefixed_key(b"a"), bytes(16)),
        (prefixed_key(b"a", index_bytes(3)), Json.encode("x")),
        (prefixed_key(b"a", index_bytes(4)), Json.encode("y")),
        (prefixed_key(b"ab", index_bytes(0)), Json.encode("z")),
    )
    assert list(lists.rows_of(store, b"a")) == [Row("a", "x", index=3), Row("a", "y", index=4)]
    assert len(list(lists.rows(store))) == 3


def test_maps_decode_their_keys() -> None:
    maps = decoder("map", "prefixed", {**Integer.describe(), "map_key": Json.describe()})
    store = reader((prefixed_key(b"a", Json.encode(["shop", 1])), Integer.encode(5)))
    assert list(maps.rows_of(store, b"a")) == [Row("a", 5, map_key=["shop", 1])]


def test_keys_are_written_as_text_or_as_json() -> None:
    assert decoder("value", "plain", Json.describe()).key_bytes("5") == b"5"
    assert decoder("value", "plain", Json.describe(), Bytes).key_bytes("é") == "é".encode()  # type: ignore[arg-type]
    numbers = decoder("value", "plain", Json.describe(), Integer)  # type: ignore[arg-type]
    assert numbers.key_bytes("5") == Integer.encode(5)
    for wrong in ("five", '"5"', ""):
        with pytest.raises(ConfigError, match="is not a key of s"):
            numbers.key_bytes(wrong)


def test_a_codec_of_the_application_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="No codec is known"):
        decoder("value", "plain", {"codec": "mine"})
