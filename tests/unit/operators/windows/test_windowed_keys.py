"""Under which keys a window's results leave: never so that the window is lost without a word."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import stateflow as sf
from stateflow.errors import GraphError
from stateflow.testing import TestDriver

MINUTE_MS = 60_000
T0 = 1_700_000_040_000


@dataclass(frozen=True)
class Shop:
    city: str
    number: int


class Text(sf.Codec[Any]):
    """Somebody's own codec, which may well have room for a window."""

    def _encode(self, value: Any) -> bytes:
        return repr(value).encode()

    def _decode(self, data: bytes) -> Any:
        return data.decode()

    def describe(self) -> dict[str, Any]:
        return {"codec": "text"}


def written(inner: Any, outside: Any, key: Any) -> bytes | None:
    """The key of one window's result, as bytes."""
    app = sf.App("shop")
    orders = app.topic("orders", key=inner, value=int)
    counts = app.topic("counts", key=outside, value=int)
    stream = app.stream(orders, co_partitioned=True).window(sf.Tumbling(timedelta(minutes=1)))
    stream.count(name="n").filter(bool).to(counts)
    driver = TestDriver(app, partitions=1)
    driver.send(orders, 1, key=key, timestamp_ms=T0)
    raw = app.topic("counts-raw")
    (record,) = driver.output(type(raw)("counts", sf.Bytes, sf.Bytes))
    assert record.timestamp_ms == T0, "whatever the key: a result's time is its window's start"
    return record.key  # type: ignore[no-any-return]


WINDOW = T0.to_bytes(8, "big")


@pytest.mark.parametrize(
    ("inner", "outside", "key", "expected"),
    [
        (str, sf.WindowedKey(sf.String, MINUTE_MS), "a", b"a" + WINDOW),
        (str, sf.WindowedKey(sf.JsonOf(str), MINUTE_MS), "a", b'"a"' + WINDOW),
        (str, sf.Bytes, "a", b"a" + WINDOW),
        (str, str, "a", b"a"),
        (sf.Json, sf.Json, "a", b'"a"'),
        (Text(), Text(), "a", b"'a'"),
        (int, sf.Int32, 7, bytes([0, 0, 0, 7])),
        (int, sf.JsonOf(int), 7, b"7"),
        (sf.MsgPackOf(Shop), Shop, Shop("Ulm", 1), b'{"city":"Ulm","number":1}'),
    ],
)
def test_the_window_is_in_the_key_or_the_key_is_declared_without_it(
    inner: Any, outside: Any, key: Any, expected: bytes
) -> None:
    assert written(inner, outside, key) == expected


@pytest.mark.parametrize(
    ("inner", "outside"),
    [
        (str, Text()),
        (str, sf.Json),
        (str, sf.MsgPack),
        (str, int),
        (str, sf.JsonOf(sf.Windowed[str])),
        (Text(), str),
        (sf.Json, str),
        (Shop, sf.Json),
    ],
)
def test_a_key_codec_that_says_nothing_of_the_window_is_refused(inner: Any, outside: Any) -> None:
    with pytest.raises(GraphError, match=r"to counts.*window.*WindowedKey\(.*60000\)"):
        written(inner, outside, "a")


def test_windows_of_another_size_are_refused() -> None:
    """The size is not in the bytes: whoever reads would take every window to end at another time."""
    with pytest.raises(GraphError, match=r"windows of 60000 ms.*1000 ms"):
        written(str, sf.WindowedKey(sf.String, 1_000), "a")


def test_keys_without_a_window_are_rewritten_as_ever() -> None:
    app = sf.App("shop")
    orders, out = app.topic("orders", key=str, value=int), app.topic("out", key=Text(), value=int)
    app.stream(orders).to(out)
    driver = TestDriver(app, partitions=1)
    driver.send(orders, 1, key="a")
    assert [record.key for record in driver.output(out)] == ["'a'"]
