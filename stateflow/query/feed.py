"""The change feed of a store: how far it has come, and what is to be read next. Free of Spark.

A feed goes through the changelog of one generation after the other. It ends, for now, behind the newest commit record
of each partition: what stands behind that is not committed yet, visible or not (``changelog.sequences``).

After a repartition it reads the old generation to its end, then the new one from its beginning: the state that was
moved comes as rows once more, each with its present value, then what was changed since. So nothing is missing, and a
reader that keeps the newest row of each key is right throughout; the column ``generation`` tells the copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import Catalog, GenerationEntry, StoreEntry
from stateflow.catalog.names import changelog_topic
from stateflow.changelog.commit_record import COMMIT_KEY
from stateflow.checkpoint.tails import read_tails
from stateflow.errors import (
    ChangelogTrimmed,
    ConfigError,
    OffsetOutOfRange,
    SavepointUnfit,
    TopicMissing,
    TopicRecreated,
)
from stateflow.log.base import Cluster
from stateflow.log.reading import read_range
from stateflow.query.changes import HELD_RECORDS_MAX, ChangeRange, ChangeTable
from stateflow.query.snapshot import store_of, table_of
from stateflow.record import OffsetRange, TopicPartition

Start = Literal["earliest", "latest"]
"""Where a feed begins: with all there is, the newest change of each key at least, or with what comes from now on."""

_BEGIN_ANEW = "start the query anew with another checkpoint folder: it begins with the present state."


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """How far a feed has come: the next offset to read of each changelog partition of one generation."""

    generation: int
    topic_id: str
    offsets: Mapping[int, int]

    def to_fields(self) -> dict[str, Any]:
        """As JSON-able data; Spark keeps it in the query's checkpoint."""
        offsets = {str(partition): self.offsets[partition] for partition in sorted(self.offsets)}
        return {"generation": self.generation, "topic_id": self.topic_id, "offsets": offsets}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> FeedPlace:
        """Read back."""
        offsets = {int(partition): int(offset) for partition, offset in fields["offsets"].items()}
        return cls(int(fields["generation"]), str(fields["topic_id"]), offsets)


class Feed:
    """Plans what is read of one store's changes. Everything it decides is in the places that it returns."""

    def __init__(self, cluster: Cluster, app: str, store: str) -> None:
        self._cluster = cluster
        self._control = ControlTopic(cluster, app)
        self._app = app
        self._store = store

    def table(self) -> ChangeTable:
        """The columns, by the present catalog. Raises ``CatalogMissing``, and ``ConfigError`` for an unknown store."""
        return ChangeTable(table_of(self._entry(self._control.load())))

    def first(self, start: Start) -> FeedPlace:
        """Where a new feed begins. Raises ``ChangelogTrimmed`` where not all there is is in the changelog."""
        catalog = self._control.load()
        number = catalog.changelog_generation(self._entry(catalog).stage)
        return self._beginning(number) if start == "earliest" else self._end(number)

    def latest(self) -> FeedPlace:
        """Behind the newest commits of this moment, in the active generation."""
        return self.first("latest")

    def next(
        self, start: FeedPlace, slots_max: int | None = None, until: FeedPlace | None = None
    ) -> FeedPlace:
        """Where to read to from ``start``: in its generation to the end, or from its end into the one that follows.

        ``slots_max`` bounds the offsets read of each partition; a commit is not cut in two by it, so it is reached or
        passed by somewhat. ``until`` fixes what is the end. The same place if there is nothing to read.
        """
        catalog = self._control.load()
        self._check_topic(start)
        end = (
            until
            if until is not None and until.generation == start.generation
            else self._end(start.generation)
        )
        if self._is_at(start, end) and (until is None or until.generation > start.generation):
            follows = self._following(catalog, start.generation)
            if follows is not None:
                begun = self._beginning(follows)
                end = until if until is not None and until.generation == follows else self._end(follows)
                return self._bounded(begun, end, slots_max)
        return self._bounded(start, end, slots_max)

    def ranges(self, start: FeedPlace, end: FeedPlace) -> list[ChangeRange]:
        """What is to be read between two places that ``next`` returned, the same however often it is asked."""
        entry = self._entry(self._control.load())
        self._check_topic(end)
        begun = start if start.generation == end.generation else self._beginning(end.generation)
        wanted = {
            self._partition(end.generation, partition): OffsetRange(
                begun.offsets.get(partition, 0), offset_next
            )
            for partition, offset_next in end.offsets.items()
        }
        for source, log in self._cluster.ranges(wanted).items():
            if not wanted[source].is_empty and wanted[source].offset_first < log.offset_first:
                raise OffsetOutOfRange(
                    f"{source} begins at {log.offset_first}, and the feed has come to {wanted[source].offset_first}:"
                    " what is in between was deleted before an image of the state.",
                    action=_BEGIN_ANEW,
                    topic=source.topic,
                    partition=source.partition,
                    low=log.offset_first,
                )
        fields = table_of(entry).to_fields()
        return [
            ChangeRange(fields, end.generation, source, offsets)
            for source, offsets in wanted.items()
            if not offsets.is_empty
        ]

    # --- inside ---------------------------------------------------------------------------------------

    def _entry(self, catalog: Catalog) -> StoreEntry:
        return store_of(catalog.stores, self._store, self._app)

    def _topic(self, generation: int) -> str:
        return changelog_topic(self._app, self._store, generation)

    def _partition(self, generation: int, partition: int) -> TopicPartition:
        return TopicPartition(self._topic(generation), partition)

    def _check_topic(self, place: FeedPlace) -> None:
        """Raise where the changelog that a place is in is no longer there, or is another topic of that name."""
        topic = self._topic(place.generation)
        info = self._cluster.describe([topic]).get(topic)
        if info is None:
            raise self._gone(topic)
        if info.topic_id != place.topic_id:
            raise TopicRecreated(
                f"{topic} is another topic than the feed has read so far (topic id {info.topic_id}, it was"
                f" {place.topic_id}).",
                action=_BEGIN_ANEW,
                topic=topic,
            )

    def _gone(self, topic: str) -> TopicMissing:
        return TopicMissing(
            f"there is no topic {topic} any more, and the feed has not read it to its end.",
            action=f"{_BEGIN_ANEW} Keys that were deleted meanwhile are not told: compare what you keep with it. Let a"
            " feed come to the end of a generation before `stateflow scale finalize`.",
            topic=topic,
        )

    def _described(self, generation: int) -> tuple[str, list[TopicPartition]]:
        topic = self._topic(generation)
        info = self._cluster.describe([topic]).get(topic)
        if info is None:
            raise self._gone(topic)
        return info.topic_id, [TopicPartition(topic, partition) for partition in range(info.partitions)]

    def _beginning(self, generation: int) -> FeedPlace:
        topic_id, sources = self._described(generation)
        for source, log in self._cluster.ranges(sources).items():
            if log.offset_first > 0:
                raise ChangelogTrimmed(
                    f"{source} begins at {log.offset_first}: what it said before was deleted, and only images have it.",
                    action="begin the feed with starting=latest, and read the state that there is as a table"
                    ' (spark.read.format("stateflow")): that begins with the images.',
                    topic=source.topic,
                    partition=source.partition,
                    low=log.offset_first,
                )
        return FeedPlace(generation, topic_id, dict.fromkeys((source.partition for source in sources), 0))

    def _end(self, generation: int) -> FeedPlace:
        """Behind the newest commit record of each partition; the end of one that has none."""
        topic_id, sources = self._described(generation)
        tails = read_tails(self._cluster, {str(source.partition): source for source in sources})
        return FeedPlace(generation, topic_id, {int(n): tail.committed_next for n, tail in tails.items()})

    def _is_at(self, start: FeedPlace, end: FeedPlace) -> bool:
        return all(start.offsets.get(partition, 0) >= offset for partition, offset in end.offsets.items())

    def _bounded(self, start: FeedPlace, end: FeedPlace, slots_max: int | None) -> FeedPlace:
        offsets = {
            partition: self._bounded_offset(
                self._partition(end.generation, partition),
                OffsetRange(start.offsets.get(partition, 0), offset_next),
                slots_max,
            )
            for partition, offset_next in end.offsets.items()
        }
        return FeedPlace(end.generation, end.topic_id, offsets)

    def _bounded_offset(self, source: TopicPartition, left: OffsetRange, slots_max: int | None) -> int:
        """Never before the beginning: what looked committed by an end without commit records stays read."""
        if slots_max is None or left.slots <= slots_max:
            return max(left.offset_first, left.offset_next)
        aim = left.offset_first + max(1, slots_max)
        look = OffsetRange(aim - 1, min(left.offset_next, aim + HELD_RECORDS_MAX))
        for batch in read_range(self._cluster, source, look):
            for offset, key in zip(batch.offsets, batch.keys, strict=True):
                if key == COMMIT_KEY:
                    return offset + 1
        return look.offset_next

    def _following(self, catalog: Catalog, generation: int) -> int | None:
        """The number of the changelogs that followed, if they have been active by now."""
        stage = self._entry(catalog).stage
        later = {
            number: entry
            for entry in catalog.generations.values()
            if entry.state in ("active", "retired")
            and (number := self._number(catalog, stage, entry)) > generation
        }
        if not later:
            return None
        following = min(later)
        if (savepoint := later[following].savepoint) is not None:
            raise SavepointUnfit(
                f"{self._app!r} was started from the savepoint {savepoint}: what its feed has told since that was made"
                " is no longer so.",
                action=_BEGIN_ANEW,
                savepoint=savepoint,
            )
        return following

    def _number(self, catalog: Catalog, stage: str, entry: GenerationEntry) -> int:
        return entry.generation if catalog.is_rekeyed(stage) else entry.source_generation


def checked_start(text: str) -> Start:
    """``earliest`` or ``latest``. Raises ``ConfigError``."""
    if text not in ("earliest", "latest"):
        raise ConfigError(
            f"a feed cannot begin at {text!r}.", action="say starting=earliest or starting=latest."
        )
    return "earliest" if text == "earliest" else "latest"
