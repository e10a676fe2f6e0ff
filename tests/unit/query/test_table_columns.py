"""State as Arrow columns, on the memory log. Needs no session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from stateflow.changelog.format import TOUCH_KEY
from stateflow.codec.evolving import enveloped
from stateflow.codec.scalar import String
from stateflow.codec.table import from_description
from stateflow.codec.timed import NEVER_MS, stamp, stamp_both
from stateflow.codec.timer import EncodedTimer, Timer
from stateflow.errors import DecodeError, TopicMissing
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.query.columns import TableSpec, table_batches
from stateflow.query.snapshot import topic_snapshot
from stateflow.record import TopicPartition
from stateflow.scale.ranges import ChangelogRange
from stateflow.state.layout import index_bytes, prefixed_key, window_key
from stateflow.state.path import instant, step
from stateflow.state.timers import timers_entry

STRING = {"codec": "string"}
SOURCE = TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    made = MemoryCluster()
    made.create([TopicSpec("t", 2)])
    yield made
    made.close()


def rows(
    cluster: MemoryCluster, spec: TableSpec, entries: list[tuple[bytes, bytes | None]]
) -> list[dict[str, Any]]:
    writer = cluster.writer()
    writer.begin()
    writer.send("t", TOUCH_KEY, b"", partition=1, timestamp_ms=1)
    for key, value in entries:
        writer.send("t", key, value, partition=1, timestamp_ms=1)
    writer.commit()
    writer.close()
    part = ChangelogRange(SOURCE, cluster.ranges([SOURCE])[SOURCE], None)
    batches = table_batches(cluster, spec, part)
    return [row for batch in batches for row in batch.to_pylist()]


def test_newest_value_of_each_key(cluster: MemoryCluster) -> None:
    spec = TableSpec(
        kind="value", layout="plain", key_codec=STRING, value_codec={"codec": "integer", "bits": 64}
    )
    number = from_description(spec.value_codec).encode
    found = rows(cluster, spec, [(b"a", number(1)), (b"b", number(2)), (b"a", number(-3)), (b"b", None)])
    assert found == [{"key": "a", "value": -3, "partition": 1}]
    assert spec.ddl == "`key` string, `value` bigint, `partition` int"
    assert TableSpec(**spec.to_fields()) == spec


def test_windows_and_structured_values(cluster: MemoryCluster) -> None:
    spec = TableSpec(kind="window", layout="window", key_codec=STRING, value_codec={"codec": "json"})
    (row,) = rows(cluster, spec, [(window_key(b"a", 3_600_000), b'{"n": 1, "m": [2]}')])
    assert row["window_start"] == datetime(1970, 1, 1, 1, tzinfo=UTC)
    assert (row["key"], row["value"]) == ("a", '{"m": [2], "n": 1}')


def test_a_list_without_its_bookkeeping(cluster: MemoryCluster) -> None:
    spec = TableSpec(kind="list", layout="prefixed", key_codec=STRING, value_codec={"codec": "bytes"})
    ends = prefixed_key(b"a"), index_bytes(4) + index_bytes(6)
    found = rows(cluster, spec, [ends, (prefixed_key(b"a", index_bytes(5)), b"x")])
    assert found == [{"key": "a", "index": 5, "value": b"x", "partition": 1}]


def test_a_map_whose_values_carry_their_time(cluster: MemoryCluster) -> None:
    value_codec = {"codec": "timestamped", "value": STRING, "map_key": STRING}
    spec = TableSpec(kind="map", layout="prefixed", key_codec=STRING, value_codec=value_codec)
    (row,) = rows(cluster, spec, [(prefixed_key(b"a", b"shop"), stamp(b"v", 1_500))])
    assert row == {
        "key": "a",
        "map_key": "shop",
        "value": "v",
        "written_at": datetime.fromtimestamp(1.5, UTC),
        "partition": 1,
    }


def test_what_cannot_be_read_is_an_error(cluster: MemoryCluster) -> None:
    spec = TableSpec(kind="value", layout="plain", key_codec=STRING, value_codec={"codec": "json"})
    with pytest.raises(DecodeError):
        rows(cluster, spec, [(b"a", b"{")])
    with pytest.raises(TopicMissing):
        topic_snapshot(cluster, "nothing", spec)


ORDERED = {"codec": "ordered-integer", "bits": 64}
INTEGER = {"codec": "integer", "bits": 64}


def test_sets_nested_maps_and_versions_have_columns_of_their_own(cluster: MemoryCluster) -> None:
    number, ordered = from_description(INTEGER).encode, from_description(ORDERED).encode
    tags = TableSpec(
        kind="set", layout="prefixed", key_codec=STRING, value_codec={"codec": "none", "element": ORDERED}
    )
    assert rows(cluster, tags, [(prefixed_key(b"a", ordered(-5)), b"")]) == [
        {"key": "a", "value": -5, "partition": 1}
    ]
    nested = TableSpec(
        kind="nested",
        layout="prefixed",
        key_codec=STRING,
        value_codec={**INTEGER, "map_keys": [STRING, ORDERED]},
    )
    entry = prefixed_key(b"a", step(b"x\0") + ordered(2)), number(3)
    assert rows(cluster, nested, [(prefixed_key(b"a", ordered(-5)), None), entry]) == [
        {"key": "a", "map_key_1": "x\0", "map_key_2": 2, "value": 3, "partition": 1}
    ]


def test_versions_say_from_when_they_hold(cluster: MemoryCluster) -> None:
    value_codec = {"codec": "optional", "value": INTEGER}
    spec = TableSpec(kind="versioned", layout="prefixed", key_codec=STRING, value_codec=value_codec)
    value = from_description(value_codec).encode
    entries = [(prefixed_key(b"a", instant(at)), value(held)) for at, held in ((1_000, 7), (2_000, None))]
    found = rows(cluster, spec, [*entries])
    assert [(row["valid_from"].second, row["value"]) for row in found] == [(1, 7), (2, None)]
    assert spec.ddl == "`key` string, `valid_from` timestamp, `value` bigint, `partition` int"


def test_elements_with_a_time_to_live_tell_when_they_were_added(cluster: MemoryCluster) -> None:
    value_codec = {"codec": "timestamped", "value": {"codec": "none"}, "element": STRING}
    spec = TableSpec(kind="set", layout="prefixed", key_codec=STRING, value_codec=value_codec)
    (row,) = rows(cluster, spec, [(prefixed_key(b"a", b"x"), stamp(b"", 1_500))])
    assert (row["value"], row["written_at"].microsecond) == ("x", 500_000)


def test_values_of_older_schemas_stand_beside_those_of_now(cluster: MemoryCluster) -> None:
    schemas = [
        {"number": 1, "version": 1, "value_codec": INTEGER},
        {"number": 2, "version": 2, "value_codec": {"codec": "json"}},
    ]
    spec = TableSpec(
        kind="value", layout="plain", key_codec=STRING, value_codec={"codec": "json"}, schemas=schemas
    )
    old, new = from_description(INTEGER).encode(-7), enveloped(b'{"a":1}', 2)
    found = rows(cluster, spec, [(b"old", old), (b"new", new)])
    assert {row["key"]: row["value"] for row in found} == {"old": "-7", "new": '{"a": 1}'}
    assert TableSpec(**json.loads(json.dumps(spec.to_fields()))).ddl == spec.ddl


def test_values_with_their_own_time_to_live_tell_when_they_go(cluster: MemoryCluster) -> None:
    spec = TableSpec(
        kind="value", layout="plain", key_codec=STRING, value_codec={"codec": "expiring", "value": STRING}
    )
    entries = [(b"a", stamp_both(b"x", 1_000, 2_000)), (b"b", stamp_both(b"y", 1_000, NEVER_MS))]
    found = rows(cluster, spec, [*entries])
    assert [row["expires_at"] and row["expires_at"].second for row in found] == [2, None]
    assert [row["value"] for row in found] == ["x", "y"]


def test_timers_are_a_table_too(cluster: MemoryCluster) -> None:
    entry = timers_entry("op-timers", String)
    spec = TableSpec(
        kind=entry.kind, layout=entry.layout, key_codec=entry.key_codec, value_codec=entry.value_codec
    )
    timer = EncodedTimer.encode(Timer("event", 5_000, 1_000))
    (row,) = rows(cluster, spec, [(prefixed_key(b"a", b"idle"), timer)])
    assert (row["key"], row["map_key"], json.loads(row["value"])["due_ms"]) == ("a", "idle", 5_000)
