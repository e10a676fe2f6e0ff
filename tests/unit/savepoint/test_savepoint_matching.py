"""Whether a savepoint fits: what is kept, begins empty or would be lost, and where sources go on."""

from __future__ import annotations

import msgspec
import pytest

from stateflow.catalog.model import AppEntry, Catalog, InputEntry, RoutingEntry, StageEntry, StoreEntry
from stateflow.checkpoint.savepoints import SavedInput, SavedQueue, SavedTask, Savepoint
from stateflow.errors import CatalogIncompatible, SavepointUnfit
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from stateflow.savepoint.matching import match, source_positions

READ = StageEntry(name="in", inputs=(InputEntry(name="in"),), source_partitions=1)
KEYED = StageEntry(name="by-key", inputs=(InputEntry(name="by-key", upstream="in"),))
TEXT = {"codec": "string"}


def store(name: str, **fields: object) -> StoreEntry:
    entry = StoreEntry(
        name=name, stage="by-key", kind="value", layout="plain", key_codec=TEXT, value_codec=TEXT
    )
    return msgspec.structs.replace(entry, **fields)


def expected(*stores: StoreEntry, source_id: str = "id-1", keyed: bool = True) -> Catalog:
    read = msgspec.structs.replace(READ, source_ids={"in": source_id})
    return Catalog(
        app=AppEntry(app="app", guarantee="exactly-once"),
        stages={"in": read, **({"by-key": KEYED} if keyed else {})},
        stores={entry.name: entry for entry in stores},
        generations={},
    )


def savepoint(*stores: StoreEntry, in_flight: int = 0, offset_next: int = 3) -> Savepoint:
    at = SavedInput(topic="in", partition=0, offset_next=offset_next)
    return Savepoint(
        app="app",
        name="one",
        number=1,
        cluster_id="c",
        generation=0,
        created_ms=1,
        guarantee="exactly-once",
        routing=RoutingEntry(kind="modulo", partitions=1),
        stages=(READ, KEYED),
        stores=stores,
        source_ids={"in": "id-1"},
        tasks=(
            SavedTask(task="in-0", stage="in", partition=0, inputs=(at,), image=None),
            SavedTask(task="by-key-0", stage="by-key", partition=0, inputs=(), image=None),
        ),
        queues=(SavedQueue(step="by-key", partition=0, records=in_flight, size_bytes=4, sha256="0" * 64),),
    )


def test_steps_are_recognised_by_their_names() -> None:
    found = match(
        savepoint(store("a"), store("b")), expected(store("a"), store("c")), allow_dropped_state=True
    )
    assert (found.kept, found.added, found.dropped) == (("a",), ("c",), ("b",))
    assert found.steps_kept == ("by-key",)


def test_state_without_a_place_is_refused_and_named() -> None:
    with pytest.raises(SavepointUnfit, match="store 'b'") as refused:
        match(savepoint(store("a"), store("b")), expected(store("a")), allow_dropped_state=False)
    assert refused.value.fields["dropped"] == ["b"]
    assert "--allow-dropped-state" in refused.value.action


def test_records_in_flight_without_a_place_are_refused_too() -> None:
    with pytest.raises(SavepointUnfit, match="5 records on their way to 'by-key'"):
        match(savepoint(in_flight=5), expected(keyed=False), allow_dropped_state=False)
    assert match(savepoint(), expected(keyed=False), allow_dropped_state=False).steps_dropped == ()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"layout": "window"}, "layout"),
        ({"stage": "in"}, "stage"),
        ({"key_codec": {"codec": "bytes"}}, "key_codec"),
    ],
)
def test_state_whose_bytes_would_change_meaning_is_refused(fields: dict[str, object], named: str) -> None:
    with pytest.raises(CatalogIncompatible, match=named):
        match(savepoint(store("a")), expected(store("a", **fields)), allow_dropped_state=True)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.create([TopicSpec("in", 1)])
    writer = made.writer()
    for number in range(5):
        writer.send("in", None, b"%d" % number, partition=0)
    writer.commit()
    return made


SOURCE = TopicPartition("in", 0)


def test_the_same_topic_goes_on_at_the_vector(cluster: MemoryCluster) -> None:
    assert source_positions(cluster, savepoint(), expected(), None) == {SOURCE: 3}


@pytest.mark.parametrize(("policy", "offset"), [("offsets", 3), ("earliest", 0), ("latest", 5)])
def test_another_topic_of_that_name_needs_a_word(cluster: MemoryCluster, policy: str, offset: int) -> None:
    elsewhere = expected(source_id="id-2")
    with pytest.raises(SavepointUnfit, match="another topic id"):
        source_positions(cluster, savepoint(), elsewhere, None)
    found = source_positions(cluster, savepoint(), elsewhere, policy)  # type: ignore[arg-type]
    assert found == {SOURCE: offset}


def test_a_position_that_the_topic_does_not_have_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(SavepointUnfit, match="goes on at 9"):
        source_positions(cluster, savepoint(offset_next=9), expected(), None)
