"""Moving everything that a repartition moves: what is fixed beforehand, and the jobs that then do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stateflow.catalog.model import Catalog, GenerationEntry, KeyLayout
from stateflow.checkpoint.whole import Base, with_base_slot
from stateflow.clock import Clock
from stateflow.log.base import Cluster, Committed
from stateflow.record import OffsetRange, TopicPartition
from stateflow.scale.engine import Engine
from stateflow.scale.last_commits import LastCommits
from stateflow.scale.plan import base_of, source_ranges
from stateflow.scale.progress import Done, ProgressWatch
from stateflow.scale.progress_group import FixedMove, progress_group, slice_progress
from stateflow.scale.ranges import changelog_ranges, grouped, slots_of_slice
from stateflow.scale.scope import MovedTopic, moved_topics
from stateflow.scale.settings import ScaleSettings
from stateflow.scale.state_move import RangeJob, SliceJob, send_state, write_slice
from stateflow.scale.unread import UnreadMove, move_unread


@dataclass(frozen=True, slots=True)
class OldPartition:
    """One partition of generation g, and what is fixed of it."""

    source: TopicPartition
    offsets: OffsetRange
    base: Base | None = None
    """The image that a trimmed changelog begins with; ``offsets`` has a slot for it."""


@dataclass(frozen=True, slots=True)
class TopicMove:
    """Everything of one store or re-key step."""

    topic: MovedTopic
    target_topic: str
    partitions: tuple[OldPartition, ...]
    size_bytes: int
    """Estimated."""
    slices: int | None
    """Of a store; None for a repartition topic."""

    @property
    def layout(self) -> KeyLayout | None:
        """Key layout of the store; None for a repartition topic."""
        return self.topic.layout

    @property
    def slots(self) -> int:
        """Offset slots to read."""
        return sum(old.offsets.slots for old in self.partitions)


@dataclass(frozen=True, slots=True)
class Moved:
    """What moving did."""

    records_read_total: int
    records_written_total: int


@dataclass(frozen=True, slots=True)
class Moves:
    """All moves of one repartition, with the limits that they keep."""

    app: str
    entry: GenerationEntry
    settings: ScaleSettings
    topics: tuple[TopicMove, ...]

    @property
    def slots(self) -> int:
        """Offset slots to read."""
        return sum(move.slots for move in self.topics)

    @property
    def ranges(self) -> dict[TopicPartition, OffsetRange]:
        """What is read of each old partition."""
        return {old.source: old.offsets for move in self.topics for old in move.partitions}

    def run(self, cluster: Cluster, engine: Engine, watch: ProgressWatch) -> Moved:
        """Move what is not yet moved. Raises as ``move_unread``, ``send_state`` and ``write_slice``."""
        queues = list(self._unread_moves())
        senders, receivers = self._state_jobs(cluster, engine.lanes)
        watch.expect(sum(job.slots for job in senders) + sum(job.slots for job in receivers), queues)
        unread = engine.run(move_unread, queues, watch.note)
        read, written = engine.shuffle(send_state, senders, write_slice, receivers, watch.note)
        done: list[Done] = [*unread, *read, *written]
        return Moved(
            sum(result.records_read_total for result in done),
            sum(result.records_written_total for result in done),
        )

    def _unread_moves(self) -> Iterator[UnreadMove]:
        for move in self.topics:
            for old in move.partitions if move.layout is None else ():
                if old.offsets.is_empty:
                    continue  # no transaction for nothing
                yield UnreadMove(
                    app=self.app,
                    generation=self.entry.generation,
                    source=old.source,
                    offsets=old.offsets,
                    target_topic=move.target_topic,
                    routing=self.entry.routing,
                    chunk_records_max=self.settings.chunk_records_max,
                    chunk_bytes_max=self.settings.chunk_bytes_max,
                )

    def _state_jobs(self, cluster: Cluster, lanes: int) -> tuple[list[RangeJob], list[SliceJob]]:
        """The slices that are not moved yet, and the sub-ranges of the stores that have any."""
        receivers: list[SliceJob] = []
        senders: list[RangeJob] = []
        left = self._unmoved(cluster)
        slots, size_bytes = sum(move.slots for move, _ in left), sum(move.size_bytes for move, _ in left)
        slots_each = self.settings.ranges.slots_each(slots, size_bytes, lanes)
        for move, jobs in left:
            wanted = {job.number: len(receivers) + at for at, job in enumerate(jobs)}
            receivers += jobs
            parts = [
                part
                for old in move.partitions
                if not old.offsets.is_empty
                for part in changelog_ranges(old.source, old.offsets, old.base, slots_each)
            ]
            senders += [
                RangeJob(
                    parts=some,
                    slices=jobs[0].slices,
                    receivers=wanted,
                    memory_bytes_max=self.settings.ranges.memory_bytes_max,
                )
                for some in grouped(parts, slots_each)
            ]
        return senders, receivers

    def _unmoved(self, cluster: Cluster) -> list[tuple[TopicMove, list[SliceJob]]]:
        """The stores that have slices which are not moved yet, with these."""
        every = [(move, self._slice_jobs(move)) for move in self.topics]
        # What an attempt has left open is not waited for: the jobs fence it, and then look themselves.
        found = slice_progress(cluster, [job.slot for _, jobs in every for job in jobs], stable=False)
        unmoved = [(move, [job for job in jobs if not found[job.slot].is_whole]) for move, jobs in every]
        return [(move, jobs) for move, jobs in unmoved if jobs]

    def _slice_jobs(self, move: TopicMove) -> list[SliceJob]:
        if move.layout is None or move.slices is None or move.slots == 0:
            return []
        return [
            SliceJob(
                app=self.app,
                generation=self.entry.generation,
                target_topic=move.target_topic,
                layout=move.layout,
                routing=self.entry.routing,
                number=number,
                slices=move.slices,
                slots=slots_of_slice(move.slots, number, move.slices),
                transaction_bytes_max=self.settings.chunk_bytes_max,
            )
            for number in range(move.slices)
        ]


def fix_moves(
    cluster: Cluster,
    catalog: Catalog,
    entry: GenerationEntry,
    settings: ScaleSettings,
    clock: Clock,
    lanes: int,
    bytes_estimated: Mapping[TopicPartition, int],
    last: LastCommits,
) -> Moves:
    """What is to be moved. What an earlier attempt fixed stands; what is new is committed before it is used."""
    app, group = catalog.app.app, progress_group(catalog.app.app, entry.generation)
    moves: list[TopicMove] = []
    fresh: dict[TopicPartition, Committed] = {}
    for topic in moved_topics(catalog):
        sources = topic.partitions(catalog, catalog.active.generation)
        current = source_ranges(cluster, catalog, topic, sources, last)
        bases = {at: base_of(cluster, catalog, topic, at, current[at], clock) for at in sources}
        offsets = {at: with_base_slot(current[at], bases[at]) for at in sources}
        recorded = {at: FixedMove.of(p) for at, p in cluster.committed(group, sources, stable=False).items()}
        offsets |= {at: fixed.offsets for at, fixed in recorded.items()}
        size_bytes = sum(bytes_estimated.get(at, 0) for at in sources)
        slices = None
        if topic.layout is not None:
            earlier = [fixed.of_changelog(at) for at, fixed in recorded.items()]
            slots = sum(part.slots for part in offsets.values())
            slices = earlier[0] if earlier else settings.slices(slots, size_bytes, lanes)
        fresh |= {
            at: FixedMove(offsets[at], slices).progress(offsets[at].offset_first)
            for at in sources
            if at not in recorded
        }
        partitions = tuple(OldPartition(at, offsets[at], bases[at]) for at in sources)
        moves.append(TopicMove(topic, topic.topic(entry.generation), partitions, size_bytes, slices))
    if fresh:
        cluster.commit(group, fresh)
    return Moves(app, entry, settings, tuple(moves))
