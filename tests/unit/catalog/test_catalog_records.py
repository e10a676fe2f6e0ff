"""The control topic with records on it that no stateflow wrote: passed over and named, or refused; never believed."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import VALUE_BYTES_MAX, encode_item
from stateflow.catalog.model import (
    AppEntry,
    BarrierEntry,
    Catalog,
    CatalogEntry,
    GenerationEntry,
    InputEntry,
    RoutingEntry,
    SavepointEntry,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.watch import ControlWatch
from stateflow.errors import CatalogIncompatible
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster

APP = AppEntry(app="wc", guarantee="exactly-once")
STAGE = StageEntry(name="main", inputs=(InputEntry(name="lines"),), source_partitions=2)
STORE = StoreEntry(
    name="seen",
    stage="main",
    kind="value",
    layout="plain",
    key_codec={"codec": "string"},
    value_codec={"codec": "json"},
)
BARRIER = BarrierEntry(
    barrier_id=3,
    savepoint="one",
    location="/saved",
    generation=0,
    state="complete",
    requested_ms=1,
    deadline_ms=2,
)
SAVED = SavepointEntry(
    name="one", number=3, location="/saved", generation=0, created_ms=1, tasks=1, size_bytes=1
)


def generation(number: int, state: Any, **fields: Any) -> GenerationEntry:
    ids = {f"wc-seen-changelog{f'-g{number}' if number else ''}": "id"}
    routing = RoutingEntry(kind="modulo", partitions=4)
    return GenerationEntry(
        **{"generation": number, "state": state, "routing": routing, "topic_ids": ids, **fields}
    )


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def control(cluster: MemoryCluster) -> ControlTopic:
    control = ControlTopic(cluster, "wc")
    control.write([APP, STAGE, STORE, generation(0, "retired"), generation(1, "active"), BARRIER, SAVED])
    return control


def plant(cluster: MemoryCluster, key: bytes, value: bytes | None) -> None:
    writer = cluster.writer()
    writer.begin()
    writer.send("wc-control", key, value, partition=0)
    writer.commit()
    writer.close()


def plant_entry(cluster: MemoryCluster, entry: CatalogEntry, key: bytes | None = None) -> None:
    known, value = encode_item(entry)
    plant(cluster, key or known, value)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"{", b"[]", b"{}", b"null", b"[" * 100_000])
@pytest.mark.parametrize(
    "key",
    [b"cut", b"savepoint/one", b"savepoint/\xff\xfe", b"store/nobodys", b"generation/0", b"stage/\xff/.."],
)
def test_a_bad_record_that_is_not_needed_is_passed_over_and_named(
    cluster: MemoryCluster,
    control: ControlTopic,
    key: bytes,
    value: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = control.load()
    plant(cluster, key, value)
    with caplog.at_level(logging.WARNING):
        assert control.load() == before, "what stood there before still counts"
        assert control.load() == before
    assert len(caplog.records) == 1, "told once"
    (bad,) = control.find().bad
    assert f"{bad.name!r} at offset {bad.offset}" in caplog.text
    assert "partition 0" in caplog.text


@pytest.mark.parametrize("key", [b"app", b"stage/main", b"store/seen", b"generation/1", b"generation/2"])
def test_a_bad_record_of_what_is_needed_is_refused_by_name(
    cluster: MemoryCluster, control: ControlTopic, key: bytes
) -> None:
    plant(cluster, key, b"\xff\xfe")
    with pytest.raises(CatalogIncompatible, match=key.decode()) as caught:
        control.load()
    assert "stateflow repair --app wc" in caught.value.action
    assert caught.value.fields["keys"] == [key.decode()]
    with pytest.raises(CatalogIncompatible):
        control.ensure(Catalog(app=APP, stages={}, stores={}, generations={}))


def test_a_catalog_without_its_first_entry_is_not_that_of_a_new_application(
    cluster: MemoryCluster, control: ControlTopic
) -> None:
    plant(cluster, b"app", None)
    with pytest.raises(CatalogIncompatible, match="it is not there"):
        control.read()


def test_records_of_others_are_no_catalog(cluster: MemoryCluster) -> None:
    control = ControlTopic(cluster, "wc")
    cluster.create([TopicSpec("wc-control", 1)])
    control.put(lambda _: {b"whatever/x": b"\xff", b"savepoint/a": b"\xff"})
    assert control.read() is None
    assert [key for key, _ in control.find().unknown] == [b"whatever/x"]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (msgspec.structs.replace(APP, app="other"), "of the application 'other'"),
        (msgspec.structs.replace(STAGE, inputs=(InputEntry(name="../lines"),)), "'../lines' is not a name"),
        (msgspec.structs.replace(STORE, stage="../main"), "'../main' is not a name"),
        (generation(1, "active", topic_ids={"payments": "id"}), "'payments', which is none of 'wc'"),
        (generation(1, "active", topic_ids={"wc-../x-changelog": "id"}), "which is none of 'wc'"),
        (generation(1, "active", routing=RoutingEntry(kind="modulo", partitions=0)), "0 partitions"),
        (generation(1, "active", routing=RoutingEntry(kind="ranges", partitions=2)), "cover the hash space"),
        (
            generation(
                1, "active", routing=RoutingEntry(kind="ranges", partitions=2, bounds=(0,), owners=(7,))
            ),
            "owners that are not exactly",
        ),
        (
            generation(
                1, "active", routing=RoutingEntry(kind="modulo", partitions=2, bounds=(0,), owners=(0,))
            ),
            "a modulo table with ranges",
        ),
        (msgspec.structs.replace(STAGE, source_partitions=1 << 40), "partitions"),
        (msgspec.structs.replace(STAGE, source_partitions=None), "how many partitions"),
        (
            msgspec.structs.replace(
                STAGE, inputs=(InputEntry(name="lines"), InputEntry(name="by-word", upstream="words"))
            ),
            "sources and re-key steps",
        ),
    ],
)
def test_what_an_entry_says_is_not_trusted(
    cluster: MemoryCluster, control: ControlTopic, entry: CatalogEntry, why: str
) -> None:
    plant_entry(cluster, entry)
    with pytest.raises(CatalogIncompatible, match=why):
        control.load()


@pytest.mark.parametrize("name", ["../../x", "a/b", ".", "", "a b", "x" * 101])
def test_a_barrier_or_savepoint_cannot_leave_its_folder(
    cluster: MemoryCluster, control: ControlTopic, name: str
) -> None:
    before = control.load()
    plant_entry(cluster, msgspec.structs.replace(BARRIER, savepoint=name, barrier_id=4, state="open"))
    plant_entry(cluster, msgspec.structs.replace(SAVED, name=name), key=b"savepoint/one")
    assert control.load() == before
    assert len(control.find().bad) == 2


def test_an_entry_under_the_key_of_another_is_bad(cluster: MemoryCluster, control: ControlTopic) -> None:
    plant_entry(cluster, generation(7, "active"), key=b"generation/0")
    assert control.load().active.generation == 1
    assert control.find().bad[0].why == "it holds the entry of 'generation/7'"


def test_a_record_without_end_is_not_decoded(cluster: MemoryCluster, control: ControlTopic) -> None:
    cluster.alter_topic_config("wc-control", {"max.message.bytes": str(2 * VALUE_BYTES_MAX)})
    plant(cluster, b"cut", b" " * (VALUE_BYTES_MAX + 1))
    assert control.load().barrier == BARRIER
    assert "more than" in control.find().bad[0].why


def test_a_deletion_before_a_bad_record_stays_one(cluster: MemoryCluster, control: ControlTopic) -> None:
    plant(cluster, b"savepoint/one", None)
    plant(cluster, b"savepoint/one", b"\xff")
    assert control.load().savepoints == {}


def test_those_who_follow_the_topic_pass_bad_records_over(
    cluster: MemoryCluster, control: ControlTopic, caplog: pytest.LogCaptureFixture
) -> None:
    control.load()
    watch = ControlWatch(cluster, "wc")
    plant(cluster, b"cut", b"\xff\xfe")
    plant_entry(cluster, msgspec.structs.replace(BARRIER, savepoint="../..", barrier_id=9, state="open"))
    watch.poll()
    assert (watch.newest, watch.open) == (BARRIER, None)
    assert caplog.text.count("passed over") == 2
    plant_entry(cluster, msgspec.structs.replace(BARRIER, barrier_id=4, state="open"))
    watch.poll()
    assert watch.newest == msgspec.structs.replace(BARRIER, barrier_id=4, state="open")
    watch.close()


def test_stages_are_told_once_all_was_read_that_was_there(
    cluster: MemoryCluster, control: ControlTopic
) -> None:
    catalog = control.load()
    (stage,) = [entry for entry in catalog.stages.values() if entry.source_partitions is not None]
    grown = msgspec.structs.replace(stage, source_partitions=(stage.source_partitions or 0) + 1)
    watch = ControlWatch(cluster, "wc")
    assert watch.stages() == []
    watch.poll()
    watch.poll()  # past the transaction's marker
    assert stage in watch.stages()
    plant_entry(cluster, grown)
    watch.poll()
    assert grown in watch.stages()
    assert stage not in watch.stages()
    watch.close()
