"""The catalog on the control topic: read, written by one at a time, compared with the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from stateflow.catalog.compatibility import additions, compare
from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import encode_item
from stateflow.catalog.model import (
    FORMAT_NEWEST,
    FORMAT_SHARED_WRITERS,
    AppEntry,
    Catalog,
    GenerationEntry,
    GenerationState,
    InputEntry,
    RangeAudit,
    RoutingEntry,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.records import Stored, sort_records
from stateflow.errors import (
    CatalogIncompatible,
    CatalogMissing,
    GenerationUnfinished,
    PartitionCountChanged,
    TransactionAborted,
)
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition
from tests.counting_cluster import CountingCluster

STRING = {"codec": "string"}
COUNTS = StoreEntry(
    name="counts",
    stage="by-word",
    kind="window",
    layout="window",
    key_codec=STRING,
    value_codec={"codec": "int64"},
)
SEEN = StoreEntry(
    name="seen", stage="main", kind="value", layout="plain", key_codec=STRING, value_codec={"codec": "json"}
)


def catalog(*stores: StoreEntry, source_partitions: int = 3, guarantee: str = "exactly-once") -> Catalog:
    return Catalog(
        app=AppEntry(app="wc", guarantee=guarantee),  # type: ignore[arg-type]
        stages={
            "main": StageEntry(
                name="main", inputs=(InputEntry(name="lines"),), source_partitions=source_partitions
            ),
            "by-word": StageEntry(name="by-word", inputs=(InputEntry(name="by-word", upstream="main"),)),
        },
        stores={store.name: store for store in stores or (COUNTS,)},
        generations={0: generation(0, "active")},
    )


def generation(number: int, state: GenerationState, **fields: Any) -> GenerationEntry:
    routing = RoutingEntry(kind="modulo", partitions=4)
    return GenerationEntry(generation=number, state=state, routing=routing, **fields)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def control(cluster: MemoryCluster) -> ControlTopic:
    return ControlTopic(cluster, "wc")


def test_no_topic_is_no_catalog(control: ControlTopic, cluster: MemoryCluster) -> None:
    assert control.read() is None
    with pytest.raises(CatalogMissing, match="wc"):
        control.load()
    assert cluster.list_topics() == [], "reading creates nothing"


def test_the_first_worker_writes_what_it_expects(control: ControlTopic, cluster: MemoryCluster) -> None:
    assert control.ensure(catalog()) == catalog()
    assert control.read() == catalog()
    assert cluster.topic_config("wc-control")["cleanup.policy"] == "compact"
    assert cluster.describe(["wc-control"])["wc-control"].partitions == 1


def test_a_second_start_writes_nothing(control: ControlTopic, cluster: MemoryCluster) -> None:
    control.ensure(catalog())
    partition = TopicPartition("wc-control", 0)
    before = cluster.ranges([partition])
    assert control.ensure(catalog()) == catalog()
    assert cluster.ranges([partition]) == before


def test_only_what_was_written_since_is_a_reason_to_read_again(
    control: ControlTopic, cluster: MemoryCluster
) -> None:
    control.ensure(catalog())
    counting = CountingCluster(cluster)
    own = ControlTopic(counting, "wc")
    for _ in range(3):
        assert own.load() == catalog()
    assert counting.readers == 1
    both = control.ensure(catalog(COUNTS, SEEN))
    assert [own.load(), own.load()] == [both, both]
    assert counting.readers == 2


def test_a_topic_made_anew_is_read_again_though_it_is_as_long(
    control: ControlTopic, cluster: MemoryCluster
) -> None:
    control.ensure(catalog())
    partition = TopicPartition("wc-control", 0)
    before = cluster.ranges([partition])
    cluster.delete(["wc-control"])
    other = ControlTopic(cluster, "wc").ensure(catalog(SEEN))
    assert cluster.ranges([partition]) == before
    assert control.load() == other


def test_a_new_store_is_added(control: ControlTopic) -> None:
    control.ensure(catalog())
    both = catalog(COUNTS, SEEN)
    assert control.ensure(both) == both
    assert control.load().stores.keys() == {"counts", "seen"}


def test_outputs_of_former_code_are_kept(control: ControlTopic) -> None:
    """A transaction may be open there still."""
    for topic in ("old", "new"):
        stages = catalog().stages
        stages["main"] = msgspec.structs.replace(stages["main"], outputs=(topic,))
        control.ensure(msgspec.structs.replace(catalog(), stages=stages))
    assert control.load().stages["main"].outputs == ("new", "old")


def test_what_state_does_not_depend_on_may_change(control: ControlTopic) -> None:
    control.ensure(catalog())
    changed = msgspec.structs.replace(
        COUNTS, retention_ms=5, grace_ms=7, version=2, changelog_policy="every-update"
    )
    expected = catalog(changed, guarantee="at-least-once")
    found = control.ensure(expected)
    assert found.app == expected.app
    assert msgspec.structs.replace(found.stores["counts"], schema_number=1, older=()) == changed


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("kind", "value", 'store \'counts\': kind is "value" in the code, "window" in the catalog'),
        ("layout", "plain", 'layout is "plain" in the code'),
        ("stage", "main", 'stage is "main" in the code'),
        ("key_codec", {"codec": "json"}, 'key_codec is {"codec":"json"} in the code, {"codec":"string"}'),
        ("value_codec", {"codec": "float64"}, "value_codec"),
        ("window_ms", 60_000, "window_ms is 60000 in the code, null in the catalog"),
        ("version", 0, "version is 0 in the code, 1 in the catalog"),
    ],
)
def test_a_store_whose_bytes_would_change_meaning_is_refused(
    control: ControlTopic, field: str, value: object, said: str
) -> None:
    control.ensure(catalog())
    with pytest.raises(CatalogIncompatible) as caught:
        control.ensure(catalog(msgspec.structs.replace(COUNTS, **{field: value})))
    assert said in str(caught.value)
    assert "another name" in caught.value.action
    assert control.load() == catalog(), "nothing was written"


def test_every_difference_is_named() -> None:
    stages = {"by-word": StageEntry(name="by-word", inputs=(InputEntry(name="by-letter", upstream="main"),))}
    code = msgspec.structs.replace(catalog(SEEN), stages=stages)
    assert list(compare(code, catalog(COUNTS))) == [
        "stage 'main' is in the catalog and not in the code",
        'stage \'by-word\': inputs is [{"name":"by-letter","upstream":"main"}] in the code,'
        ' [{"name":"by-word","upstream":"main"}] in the catalog',
        "store 'counts' is in the catalog and not in the code",
    ]


def test_a_source_with_state_may_not_change_its_partitions(control: ControlTopic) -> None:
    control.ensure(catalog(SEEN))
    with pytest.raises(PartitionCountChanged, match=r"had 3 partitions .* now have 5"):
        control.ensure(catalog(SEEN, source_partitions=5))


def test_a_source_without_state_may(control: ControlTopic) -> None:
    control.ensure(catalog(COUNTS))
    assert control.ensure(catalog(COUNTS, source_partitions=5)).partitions("main") == 5


def test_an_unfinished_generation_refuses_a_start(control: ControlTopic) -> None:
    control.ensure(catalog())
    control.write_generations([generation(1, "preparing")])
    for expected in (catalog(), catalog(COUNTS, SEEN)):
        with pytest.raises(GenerationUnfinished, match="generation 1") as caught:
            control.ensure(expected)
        assert "scale start --partitions 4" in caught.value.action
    control.write_generations([generation(1, "aborted")])
    assert control.ensure(catalog()).active.generation == 0


def test_generations_move_on_together_and_only_forwards(control: ControlTopic) -> None:
    control.ensure(catalog())
    control.write_generations([generation(1, "preparing", topic_ids={"wc-counts-changelog-g1": "id"})])
    audit = (
        RangeAudit(store="counts", partition=0, keys_before=1, keys_after=1, hash_before=5, hash_after=5),
    )
    after = control.write_generations([generation(0, "retired"), generation(1, "active", audit=audit)])
    assert after.active.generation == 1
    assert after.active.audit == audit
    for number, state in [(0, "active"), (1, "preparing"), (1, "aborted"), (2, "retired")]:
        with pytest.raises(GenerationUnfinished):
            control.write_generations([generation(number, state)])  # type: ignore[arg-type]
    assert control.load() == after


@pytest.mark.parametrize(
    "other",
    [
        {"routing": RoutingEntry(kind="modulo", partitions=7)},
        {"savepoint": "wc/before"},
        {"merged_app": "second"},
        {"created_ms": 77},
        {"source_generation": 1},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_generation_that_is_prepared_is_not_replaced_by_another_plan(
    control: ControlTopic, other: dict[str, Any]
) -> None:
    control.ensure(catalog())
    control.write_generations([generation(1, "preparing")])
    before = control.load()
    states: tuple[GenerationState, ...] = ("preparing", "active", "aborted")
    for state in states:
        with pytest.raises(GenerationUnfinished, match="another plan"):
            control.write_generations([msgspec.structs.replace(generation(1, state), **other)])
    assert control.load() == before


def test_topics_are_recorded_once(control: ControlTopic) -> None:
    control.ensure(catalog())
    one, two = "wc-counts-changelog", "wc-by-word-repartition"
    control.record_topics(0, {one: "1"})
    after = control.record_topics(0, {one: "another", two: "2"})
    assert after.active.topic_ids == {one: "1", two: "2"}


def test_nothing_is_written_that_would_not_be_read(control: ControlTopic) -> None:
    control.ensure(catalog())
    with pytest.raises(CatalogIncompatible, match="would not be read: it names a topic 'payments'"):
        control.record_topics(0, {"payments": "1"})
    assert control.load() == catalog()


class Interfering(MemoryCluster):
    """Another worker starts while the first is between its fence and its commit."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def ranges(self, partitions: Any, *, stable: bool = True) -> Any:
        if self.times and "wc-control" in self.list_topics():
            self.times -= 1
            again, self.times = self.times, 0
            ControlTopic(self, "wc").ensure(catalog(SEEN))
            self.times = again
        return super().ranges(partitions, stable=stable)


def test_two_workers_starting_at_once_agree() -> None:
    cluster = Interfering(times=1)
    both = ControlTopic(cluster, "wc").ensure(catalog(COUNTS, SEEN))
    assert both.stores.keys() == {"counts", "seen"}


def test_losing_every_race_is_an_error() -> None:
    cluster = MemoryCluster()
    pauses: list[float] = []
    control = ControlTopic(cluster, "wc", pause=pauses.append)
    control.ensure(catalog())

    def losing(_: Catalog | None) -> list[StoreEntry]:
        cluster.writer("wc-control").close()
        return [SEEN]

    with pytest.raises(TransactionAborted, match="overtaken"):
        control._change(losing)
    assert len(pauses) == 20
    assert max(pauses) <= 10
    assert control.load() == catalog()


def test_a_control_topic_of_someone_else_is_refused(cluster: MemoryCluster, control: ControlTopic) -> None:
    cluster.create([TopicSpec("wc-control", 3)])
    with pytest.raises(PartitionCountChanged, match="must have one"):
        control.ensure(catalog())


def decode_catalog(app: str, values: Mapping[bytes, bytes | None]) -> Catalog | None:
    """The catalog out of the newest value of every key."""
    history = {key: [Stored(offset, value)] for offset, (key, value) in enumerate(values.items())}
    return sort_records(app, history).whole()


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"name": 5}', b"\xff"])
@pytest.mark.parametrize("key", [b"app", b"store/counts", b"stage/main", b"generation/0"])
def test_an_entry_that_cannot_be_read_is_named(key: bytes, value: bytes) -> None:
    values = dict([encode_item(catalog().app), encode_item(COUNTS)])
    with pytest.raises(CatalogIncompatible, match=key.decode()):
        decode_catalog("wc", {**values, key: value})


def test_a_newer_format_is_refused() -> None:
    entry = AppEntry(app="wc", guarantee="exactly-once", format=FORMAT_NEWEST + 1)
    with pytest.raises(CatalogIncompatible, match=f"format {FORMAT_NEWEST + 1}"):
        decode_catalog("wc", dict([encode_item(entry)]))


def test_that_writers_were_shared_is_kept_and_keeps_older_versions_out() -> None:
    """Version 0.2 knows format 2: it would fence the ids of tasks only."""
    before = catalog()
    shared = msgspec.structs.replace(before.app, shared_writers=True, format=FORMAT_SHARED_WRITERS)
    found = msgspec.structs.replace(before, app=shared)
    assert additions(before, found) == []
    changed = additions(catalog(guarantee="at-least-once"), found)
    assert changed == [msgspec.structs.replace(shared, guarantee="at-least-once")]
    assert before.app.format < FORMAT_SHARED_WRITERS


def test_stages_of_format_1_are_read() -> None:
    values = dict([encode_item(AppEntry(app="wc", guarantee="exactly-once", format=1))])
    values[b"stage/main"] = (
        b'{"name":"main","sources":["lines"],"repartition":null,"upstream":null,"source_partitions":2}'
    )
    values[b"stage/by-word"] = b'{"name":"by-word","sources":[],"repartition":"by-word","upstream":"main"}'
    found = decode_catalog("wc", values)
    assert found is not None
    assert found.stages["main"].sources == ("lines",)
    assert found.stages["by-word"].inputs == (InputEntry(name="by-word", upstream="main"),)


@pytest.mark.parametrize("value", [b"[[1,2,3]]", b"[]", b"7", b'{"name":"main"}', b"{"])
def test_a_broken_stage_is_refused(value: bytes) -> None:
    values = {**dict([encode_item(AppEntry(app="wc", guarantee="exactly-once"))]), b"stage/main": value}
    with pytest.raises(CatalogIncompatible, match="cannot be read"):
        decode_catalog("wc", values)


def test_keys_of_other_readers_are_passed_over() -> None:
    key, value = encode_item(catalog().app)
    found = decode_catalog("wc", {key: value, b"member/x": b"{}", b"store/gone": None})
    assert found is not None
    assert found.stores == {}


def test_equal_entries_are_equal_bytes() -> None:
    one = msgspec.structs.replace(COUNTS, value_codec={"b": 1, "a": 2})
    other = msgspec.structs.replace(COUNTS, value_codec={"a": 2, "b": 1})
    assert encode_item(one) == encode_item(other)
    assert encode_item(COUNTS)[0] == b"store/counts"
