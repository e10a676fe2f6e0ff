"""A table of state, planned before it is read: which offsets of which changelog, or which images of a savepoint.

Whoever reads it, a Spark task for each partition or this process, reads the same. Free of Spark.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from stateflow.catalog.model import Catalog, RoutingEntry, StoreEntry
from stateflow.catalog.names import changelog_topic
from stateflow.checkpoint.locations import AllowedLocations
from stateflow.checkpoint.savepoints import Savepoint, SavepointObjects
from stateflow.checkpoint.whole import Base, find_base, with_base_slot
from stateflow.clock import SystemClock
from stateflow.errors import CatalogMissing, ConfigError, StateCorrupt, TopicMissing
from stateflow.log.base import Cluster
from stateflow.query.columns import TableSpec, table_batches
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.savepoint.lookup import find_listed, open_at, open_listed
from stateflow.scale.last_commits import CommitPlaces
from stateflow.scale.ranges import ChangelogRange
from stateflow.state.evolution import schemas_of

if TYPE_CHECKING:
    import pyarrow as pa

_NO_LOG = OffsetRange(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One table, and how to read it."""

    topic: str
    table: TableSpec
    ranges: dict[int, OffsetRange]
    """Partition → offsets to read, at least."""
    bases: dict[int, Base] = field(default_factory=dict)
    """Partition → the image that its log begins with, where it was trimmed; its range has a slot for it."""
    routing: RoutingEntry | None = None
    """Which partition has a key; None where the producers of the source topic decided it."""
    routing_keys: frozenset[bytes] | None = None
    """The only keys to read; None for all."""
    is_final: bool = False
    """Nothing is written behind the offsets any more: a savepoint."""
    commits: dict[int, CommitPlaces] = field(default_factory=dict)
    """Partition → where the commits are recorded that decide how far it counts; none for a topic that counts whole."""

    def to_json(self) -> str:
        """Written, for a process that reads it."""
        return json.dumps(
            {
                "topic": self.topic,
                "table": self.table.to_fields(),
                "ranges": {str(partition): offsets for partition, offsets in self.ranges.items()},
                "bases": {str(partition): asdict(base) for partition, base in self.bases.items()},
                "routing": None if self.routing is None else msgspec.to_builtins(self.routing),
                "is_final": self.is_final,
                "commits": {str(partition): asdict(places) for partition, places in self.commits.items()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """Read back."""
        fields = json.loads(text)
        routing = fields["routing"]
        return cls(
            topic=fields["topic"],
            table=TableSpec(**fields["table"]),
            ranges={int(number): OffsetRange(*offsets) for number, offsets in fields["ranges"].items()},
            bases={int(number): Base(**base) for number, base in fields["bases"].items()},
            routing=None if routing is None else msgspec.convert(routing, RoutingEntry),
            is_final=fields["is_final"],
            commits={
                int(number): msgspec.convert(places, CommitPlaces)
                for number, places in fields["commits"].items()
            },
        )

    @property
    def partitions(self) -> list[int]:
        """Partitions that may hold something of what is wanted."""
        return sorted(number for number, offsets in self.ranges.items() if not offsets.is_empty)

    def of_partitions(self, wanted: Collection[int]) -> Snapshot:
        """The same without the other partitions."""
        return replace(self, ranges={n: offsets for n, offsets in self.ranges.items() if n in wanted})

    def of_keys(self, keys: Sequence[object]) -> Snapshot:
        """Only rows of these keys, from the partitions that have them.

        The same snapshot where that cannot be told from the key's bytes (``TableSpec.routing_key``).
        """
        encoded = [self.table.routing_key(key) for key in keys]
        found = frozenset(key for key in encoded if key is not None)
        if len(found) != len(set(encoded)):
            return self
        wanted = found if self.routing_keys is None else found & self.routing_keys
        narrowed = replace(self, routing_keys=wanted)
        if self.routing is None:
            return narrowed
        return narrowed.of_partitions(set(RoutingTable.from_entry(self.routing).partitions_of([*wanted])))

    def batches(self, cluster: Cluster, partition: int) -> Iterator[pa.RecordBatch]:
        """The live rows of one partition: while others write to it, as their last commits of this moment left them.

        A record that was fixed may have been written again behind the offsets, and the cleaner may have removed it
        where it stood: who read no further would not find its key. Raises ``DecodeError`` for what the codecs cannot
        read.
        """
        source = TopicPartition(self.topic, partition)
        return table_batches(
            cluster,
            self.table,
            ChangelogRange(source, self.ranges[partition], self.bases.get(partition)),
            end_now=None if self.is_final else lambda: self._end_now(cluster, source),
            routing_keys=self.routing_keys,
        )

    def _end_now(self, cluster: Cluster, source: TopicPartition) -> int:
        end = cluster.ends([source])[source]
        places = self.commits.get(source.partition)
        return end if places is None else _restore_next(cluster, places, source, end)


def store_snapshot(cluster: Cluster, catalog: Catalog, store: str) -> Snapshot:
    """The present state of one of an application's stores, as its commits left it.

    Under exactly-once what stands behind the last commit record is left out, visible or not; a changelog that was
    deleted before images begins with one. Raises ``CatalogMissing`` while the application's first start is under way,
    ``ConfigError`` for a store it does not have, ``TopicMissing``, ``ChangelogTrimmed``.
    """
    entry = store_of(catalog.stores, store, catalog.app.app)
    topic = changelog_topic(catalog.app.app, store, catalog.changelog_generation(entry.stage))
    _check_started(cluster, catalog, topic)
    whole = topic_snapshot(cluster, topic, table_of(entry))
    ranges: dict[int, OffsetRange] = {}
    bases: dict[int, Base] = {}
    commits: dict[int, CommitPlaces] = {}
    for partition, log in whole.ranges.items():
        source = TopicPartition(whole.topic, partition)
        commits[partition] = CommitPlaces.of_task(catalog, entry.stage, partition)
        end = _restore_next(cluster, commits[partition], source, log.offset_next)
        base = find_base(cluster, catalog, store, source, log, SystemClock())
        ranges[partition] = with_base_slot(log.until(end), base)
        if base is not None:
            bases[partition] = base
    routing = catalog.active.routing if catalog.is_rekeyed(entry.stage) else None
    return replace(whole, ranges=ranges, bases=bases, routing=routing, commits=commits)


def _restore_next(cluster: Cluster, places: CommitPlaces, changelog: TopicPartition, end: int) -> int:
    """Behind the last record of a changelog that counts; ``end`` where no commit record says."""
    committed = places.committed_end(cluster).restore_next
    return next(
        (committed.get(store, end) for store, at in places.changelogs.items() if at == changelog), end
    )


def _check_started(cluster: Cluster, catalog: Catalog, changelog: str) -> None:
    """The catalog is written before the topics are created: in between there is no state, and none was lost."""
    is_known = any(changelog in entry.topic_ids for entry in catalog.generations.values())
    if not is_known and changelog not in cluster.describe([changelog]):
        raise CatalogMissing(
            f"the first start of {catalog.app.app!r} is under way: {changelog!r} is not created yet.",
            action="try again when a worker runs.",
            app=catalog.app.app,
        )


def topic_snapshot(cluster: Cluster, topic: str, table: TableSpec) -> Snapshot:
    """The present content of any compacted topic. Raises ``TopicMissing``."""
    info = cluster.describe([topic]).get(topic)
    if info is None:
        raise TopicMissing(
            f"there is no topic {topic!r}.", action="check its name and the brokers.", topic=topic
        )
    found = cluster.ranges(TopicPartition(topic, partition) for partition in range(info.partitions))
    return Snapshot(topic=topic, table=table, ranges={source.partition: log for source, log in found.items()})


def savepoint_snapshot(
    catalog: Catalog,
    store: str,
    savepoint: str,
    *,
    location: str | None = None,
    allowed: AllowedLocations,
) -> Snapshot:
    """A store as it was at a savepoint: all partitions at one consistent cut, however much was written since.

    ``location`` is where the savepoint is, if not where the catalog says, which ``allowed`` must contain. Raises
    ``SavepointMissing``, ``StateCorrupt``, and ``ConfigError`` for a store or a place that there is not.
    """
    clock, app = SystemClock(), catalog.app.app
    if location is None:
        entry = find_listed(catalog, savepoint)
        location = allowed.resolve(entry.location)
        saved = open_listed(entry, app, clock, allowed)
    else:
        saved = open_at(location, app, savepoint, clock)
    return _of_savepoint(saved, saved.load(), store, location)


def _of_savepoint(saved: SavepointObjects, whole: Savepoint, store: str, location: str) -> Snapshot:
    stores = {entry.name: entry for entry in whole.stores}
    entry = store_of(stores, store, whole.id)
    (stage,) = [stage for stage in whole.stages if stage.name == entry.stage]
    ranges: dict[int, OffsetRange] = {}
    bases: dict[int, Base] = {}
    for task in whole.tasks:
        if task.stage != entry.stage or task.image is None:
            continue
        images = saved.images(whole.generation, task.task)
        image = images.savepoint_name(saved.id)
        manifest = images.load(image)
        if manifest.sha256 != task.image.manifest_sha256:
            raise StateCorrupt(
                f"the image of {task.task} in the savepoint {saved.id} is not the one that it was made with.",
                action="see `stateflow savepoint verify`; read another savepoint.",
                task=task.task,
            )
        if store in manifest.stores:
            base = Base(location, whole.app, whole.generation, task.task, image, store)
            bases[task.partition] = base
            ranges[task.partition] = with_base_slot(_NO_LOG, base)
    return Snapshot(
        topic=changelog_topic(whole.app, store, whole.generation),
        table=table_of(entry),
        ranges=ranges,
        bases=bases,
        routing=whole.routing if stage.rekeys else None,
        is_final=True,
    )


def table_of(entry: StoreEntry) -> TableSpec:
    """How the entries of a store read as a table."""
    return TableSpec(
        kind=entry.kind,
        layout=entry.layout,
        key_codec=entry.key_codec,
        value_codec=entry.value_codec,
        schemas=[msgspec.to_builtins(schema) for schema in schemas_of(entry)],
    )


def store_of(stores: dict[str, StoreEntry], name: str, owner: str) -> StoreEntry:
    """The entry of a store. Raises ``ConfigError``, which names those that there are."""
    entry = stores.get(name)
    if entry is None:
        raise ConfigError(
            f"{owner!r} has no store {name!r}.",
            action=f"its stores are: {', '.join(sorted(stores)) or 'none'}.",
        )
    return entry
