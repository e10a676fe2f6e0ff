"""What the consumer group of a repartition says: which offsets are moved, in how many slices, and what is done.

Progress is committed in the transactions that move, so an attempt that goes on finds what was really done. Bytes:
``docs/formats.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stateflow.catalog.model import Catalog
from stateflow.errors import GenerationUnfinished
from stateflow.log.base import Cluster, Committed
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.scope import moved_topics


def progress_group(app: str, generation: int) -> str:
    """``<app>-repartition-g<generation>``: holds the progress of the move into that generation."""
    return f"{app}-repartition-g{generation}"


@dataclass(frozen=True, slots=True)
class FixedMove:
    """What an attempt fixed for one old partition; every later attempt does the same."""

    offsets: OffsetRange
    slices: int | None
    """Slices of the store that it is of; None for a repartition topic."""

    def progress(self, offset_next: int) -> Committed:
        """A position within it, as committed."""
        text = f"{self.offsets.offset_first}-{self.offsets.offset_next}"
        return Committed(offset_next, text if self.slices is None else f"{text}/{self.slices}")

    @classmethod
    def of(cls, progress: Committed) -> FixedMove:
        """Read back."""
        text, _, slices = progress.metadata.partition("/")
        first, _, after = text.partition("-")
        return cls(OffsetRange(int(first), int(after)), int(slices) if slices else None)

    def of_changelog(self, source: TopicPartition) -> int:
        """The number of slices; raises ``GenerationUnfinished`` for what a version without slices began."""
        if self.slices is None:
            raise GenerationUnfinished(
                f"the move of {source} was begun by an earlier version, whose progress this one cannot take up.",
                action="run `stateflow scale abort`, then start again: the old generation is untouched.",
                topic=source.topic,
                partition=source.partition,
            )
        return self.slices


class Slot(NamedTuple):
    """Where the progress of one slice stands."""

    group: str
    partition: TopicPartition


def slice_slot(app: str, generation: int, target_topic: str, partitions: int, number: int) -> Slot:
    """A partition of the target for each slice, in further groups where there are more slices than partitions."""
    group, lap = progress_group(app, generation), number // partitions
    return Slot(f"{group}-{lap}" if lap else group, TopicPartition(target_topic, number % partitions))


class SliceProgress(NamedTuple):
    """How many parts of a slice are moved."""

    done: int
    parts: int
    """0 before the first is moved: only then it is fixed."""

    def committed(self) -> Committed:
        """As it is committed."""
        return Committed(self.done, str(self.parts))

    @property
    def is_whole(self) -> bool:
        """True when nothing is left to do."""
        return 0 < self.parts <= self.done


def slice_progress(
    cluster: Cluster, slots: Iterable[Slot], *, stable: bool = True
) -> Mapping[Slot, SliceProgress]:
    """The progress of each slot."""
    groups: dict[str, list[TopicPartition]] = {}
    found: dict[Slot, SliceProgress] = {}
    for slot in slots:
        groups.setdefault(slot.group, []).append(slot.partition)
        found[slot] = SliceProgress(0, 0)
    for group, partitions in groups.items():
        for partition, at in cluster.committed(group, partitions, stable=stable).items():
            found[Slot(group, partition)] = SliceProgress(at.offset_next, int(at.metadata))
    return found


def unread_writer_id(app: str, generation: int, source: TopicPartition) -> str:
    """The transactional id that moves the unread records of an old partition."""
    return f"{progress_group(app, generation)}-{source.topic}-{source.partition}"


def slice_writer_id(app: str, generation: int, target_topic: str, number: int) -> str:
    """The transactional id that writes a slice."""
    return f"{progress_group(app, generation)}-{target_topic}-slice-{number}"


def writer_ids(cluster: Cluster, catalog: Catalog, generation: int) -> list[str]:
    """The transactional ids of all writers that a move into a generation may have."""
    app = catalog.app.app
    ids: list[str] = []
    for topic in moved_topics(catalog):
        sources = topic.partitions(catalog, catalog.active.generation)
        ids += [unread_writer_id(app, generation, source) for source in sources]
        fixed = cluster.committed(progress_group(app, generation), sources, stable=False).values()
        slices = max((FixedMove.of(at).slices or 0 for at in fixed), default=0)
        target = topic.topic(generation)
        ids += [slice_writer_id(app, generation, target, number) for number in range(slices)]
    return ids
