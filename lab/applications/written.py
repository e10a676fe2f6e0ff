"""An application's topics written by hand, on any cluster: what repartition, restore and queries are tested
on.

One stateless stage reads a source topic and re-keys it; the stage behind has a store of each key layout.
Nothing is run: state, unread records and committed offsets are put on the topics directly, so a test knows
all of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import (
    AppEntry,
    Catalog,
    GenerationEntry,
    Guarantee,
    InputEntry,
    KeyLayout,
    StageEntry,
    StoreEntry,
)
from stateflow.catalog.names import changelog_topic, repartition_topic
from stateflow.changelog.event_time import Announced, EventTime, PortTime
from stateflow.changelog.format import TOUCH_KEY, WATERMARK_HEADER, is_reserved
from stateflow.changelog.position import InputPosition, to_metadata
from stateflow.changelog.sequences import resolve
from stateflow.checkpoint.tails import read_tails
from stateflow.log.base import Cluster, Committed, TopicSpec
from stateflow.log.reading import read_range
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import Headers, Record, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.runtime.worker.own_topics import CHANGELOG_CONFIG, REPARTITION_CONFIG
from stateflow.state.layout import routing_key

STEP = "by-key"
SOURCE_PARTITIONS = 2
_BYTES = {"codec": "bytes"}
_STRING = {"codec": "string"}

STORES = (
    StoreEntry(
        name="totals", stage=STEP, kind="value", layout="plain", key_codec=_STRING, value_codec=_STRING
    ),
    StoreEntry(
        name="hourly",
        stage=STEP,
        kind="window",
        layout="window",
        key_codec=_STRING,
        value_codec=_BYTES,
        window_ms=1,
    ),
    StoreEntry(
        name="recent", stage=STEP, kind="list", layout="prefixed", key_codec=_STRING, value_codec=_BYTES
    ),
)


@dataclass
class WrittenApp:
    """The application ``app`` in generation 0, routed by ``routing``."""

    cluster: Cluster
    app: str
    routing: RoutingTable
    guarantee: Guarantee = "exactly-once"
    expected: dict[str, dict[bytes, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """Live state of each store, as written."""

    def create(self) -> None:
        """Topics and catalog."""
        partitions = self.routing.partitions
        names = [changelog_topic(self.app, store.name) for store in STORES]
        specs = [TopicSpec(name, partitions, 1, CHANGELOG_CONFIG) for name in names]
        specs.append(TopicSpec(repartition_topic(self.app, STEP), partitions, 1, REPARTITION_CONFIG))
        specs.append(TopicSpec(f"{self.app}-source", SOURCE_PARTITIONS))
        found = self.cluster.create(specs)
        ids = {name: info.topic_id for name, info in found.items() if name != f"{self.app}-source"}
        ControlTopic(self.cluster, self.app).ensure(self._catalog(ids))

    def _catalog(self, topic_ids: dict[str, str]) -> Catalog:
        source = StageEntry(
            name="source",
            inputs=(InputEntry(name=f"{self.app}-source"),),
            source_partitions=SOURCE_PARTITIONS,
        )
        behind = StageEntry(name=STEP, inputs=(InputEntry(name=STEP, upstream="source"),))
        first = GenerationEntry(
            generation=0, state="active", routing=self.routing.entry(), topic_ids=topic_ids, activated_ms=1
        )
        return Catalog(
            app=AppEntry(app=self.app, guarantee=self.guarantee),
            stages={stage.name: stage for stage in (source, behind)},
            stores={store.name: store for store in STORES},
            generations={0: first},
        )

    def write_state(self, store: str, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Changes of one store, in order, in one transaction, as tasks log them; and a touch record."""
        topic = changelog_topic(self.app, store)
        writer = self.cluster.writer(f"{self.app}-{store}-by-hand")
        writer.begin()
        for key, value in changes:
            partition = self.routing.partition_of(routing_key(_layout(store), key))
            writer.send(topic, key, value, partition=partition)
            self.expected[store][key] = value or b""
            if value is None:
                del self.expected[store][key]
        writer.send(topic, TOUCH_KEY, b"", partition=0)
        writer.commit()
        writer.close()

    def write_unread(self, records: Iterable[tuple[bytes, bytes, int]], headers: Headers = ()) -> None:
        """Records (key, value, timestamp ms) behind the re-key step, followed by a watermark record."""
        topic = repartition_topic(self.app, STEP)
        writer = self.cluster.writer(f"{self.app}-unread-by-hand")
        writer.begin()
        for key, value, timestamp_ms in records:
            partition = self.routing.partition_of(key)
            writer.send(topic, key, value, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        for partition in range(self.routing.partitions):
            mark = ((WATERMARK_HEADER, Announced(0, 5).encode()),)
            writer.send(topic, None, None, partition=partition, timestamp_ms=5, headers=mark)
        writer.commit()
        writer.close()

    def commit_inputs(self, marks_ms: Mapping[int, int]) -> None:
        """Commit the input of these partitions at the present end, with the event time that the task had
        reached.
        """
        topic = repartition_topic(self.app, STEP)
        ends = stable_ranges(self.cluster, [TopicPartition(topic, partition) for partition in marks_ms])
        offsets = {}
        for source, log in ends.items():
            mark_ms = marks_ms[source.partition]
            event_time = EventTime(mark_ms, (PortTime(STEP, (mark_ms,) * SOURCE_PARTITIONS),))
            metadata = to_metadata(InputPosition(event_time=event_time))
            offsets[source] = Committed(log.offset_next, metadata)
        self.cluster.commit(self.app, offsets)

    def found_state(self, store: str, generation: int) -> dict[int, dict[bytes, bytes]]:
        """Partition → live state of a store in a generation, read from its changelog."""
        topic = changelog_topic(self.app, store, generation)
        found: dict[int, dict[bytes, bytes]] = {}
        for record_partition, records in self._records(topic).items():
            newest = {record.key: record.value for record in records if not is_reserved(record.key)}
            found[record_partition] = {key: value for key, value in newest.items() if value is not None}
        return found

    def found_unread(self, generation: int) -> dict[int, list[Record]]:
        """Partition → records of the repartition topic from the committed input on, watermark records
        included.
        """
        topic = repartition_topic(self.app, STEP, generation)
        return self._records(topic, from_committed=True)

    def committed_inputs(self, generation: int) -> dict[int, Committed]:
        """Partition → committed input of the tasks behind the re-key step."""
        topic = repartition_topic(self.app, STEP, generation)
        partitions = self.cluster.describe([topic])[topic].partitions
        found = self.cluster.committed(self.app, [TopicPartition(topic, p) for p in range(partitions)])
        return {source.partition: position for source, position in found.items()}

    def positions(self, generation: int) -> dict[int, InputPosition]:
        """Partition → where the task behind the re-key step begins, by the commit records of its changelogs."""
        found = {}
        first = changelog_topic(self.app, STORES[0].name, generation)
        for partition in range(self.cluster.describe([first])[first].partitions):
            logs = {
                store.name: TopicPartition(changelog_topic(self.app, store.name, generation), partition)
                for store in STORES
            }
            last = resolve(read_tails(self.cluster, logs)).last
            if last is not None:
                found[partition] = last.position
        return found

    def _records(self, topic: str, *, from_committed: bool = False) -> dict[int, list[Record]]:
        sources = [TopicPartition(topic, p) for p in range(self.cluster.describe([topic])[topic].partitions)]
        committed = self.cluster.committed(self.app, sources) if from_committed else {}
        found = {}
        for source, log in stable_ranges(self.cluster, sources).items():
            first = committed[source].offset_next if source in committed else log.offset_first
            batches = read_range(self.cluster, source, log._replace(offset_first=first))
            found[source.partition] = [record for batch in batches for record in batch.records()]
        return found


def _layout(store: str) -> KeyLayout:
    return next(entry.layout for entry in STORES if entry.name == store)
