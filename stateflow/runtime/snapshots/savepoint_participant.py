"""A worker's part in a savepoint of the running application: it commits barrier points and publishes the state there.

A savepoint is triggered by a barrier on the control topic. Tasks that read sources commit their barrier points when
they hear of it; a task behind a repartition topic when it meets the first record behind the barrier, and before it
processes that record (the snapshot of Lai and Yang, 1987: records carry the barrier's id, inputs are not aligned).
A barrier point is a commit, and a checkpoint of the state right after it; its upload goes on beside the poll thread.

What a task reads afterwards that was sent before the barrier belongs to the savepoint as well: input in flight, which
``savepoint/inflight.py`` collects from the repartition topics. Until the barrier is over they are not trimmed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.model import BarrierEntry, Catalog, StageEntry
from stateflow.catalog.watch import ControlWatch
from stateflow.catalog.written import Written
from stateflow.changelog.position import InputPosition, to_metadata
from stateflow.checkpoint.image_making import Taken, take_checkpoint_in
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.locations import AllowedLocations, open_objects
from stateflow.checkpoint.savepoints import (
    Part,
    SavedImage,
    SavedInput,
    SavedTask,
    SavepointObjects,
)
from stateflow.clock import Clock
from stateflow.errors import BrokerUnreachable, ConfigError, Interrupted, StateflowError
from stateflow.failpoints import reach
from stateflow.log.base import Cluster
from stateflow.record import RecordBatch, TopicPartition
from stateflow.redaction import shown
from stateflow.runtime.task.barriers import split_at_barriers
from stateflow.runtime.task.input_group import InputGroup
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring

_LOG = logging.getLogger(__name__)

_OVERDUE_MS = 30_000
"""How long after its deadline a savepoint that nobody ended is aborted by a worker; clocks may differ by so much."""

CheckpointFolder = Callable[[TaskWiring], Path]
"""Where the checkpoint of a task may be made: on the disk of its database, if it has one."""


@dataclass(frozen=True, slots=True)
class _PendingPart:
    """What stands at a barrier point that is committed, not published yet."""

    barrier_id: int
    wiring: TaskWiring
    position: InputPosition
    taken: Taken | None

    def discard(self) -> None:
        """Take the checkpoint off the disk."""
        if self.taken is not None:
            self.taken.discard()


class SavepointParticipant:
    """What one worker does for savepoints. Its methods belong to the poll thread; uploads have a thread."""

    def __init__(
        self,
        cluster: Cluster,
        app: str,
        clock: Clock,
        folder: CheckpointFolder,
        allowed: AllowedLocations,
        *,
        poll_seconds: float = 0.5,
        uploads: Executor | None = None,
        written: Written | None = None,
        on_stages: Callable[[Iterable[StageEntry]], None] | None = None,
    ) -> None:
        """``on_stages`` is told now and then what stages the catalog has, and what it raises ends the worker."""
        self._on_stages = on_stages
        self._cluster = cluster
        self._app = app
        self._clock = clock
        self._folder = folder
        self._allowed = allowed
        self._poll_seconds = poll_seconds
        self._polled_seconds = float("-inf")
        self._uploads = uploads or ThreadPoolExecutor(1, thread_name_prefix="savepoint")
        self._watch = ControlWatch(cluster, app, written)
        self._waiting: list[_PendingPart] = []
        self._published: set[tuple[int, str]] = set()
        """Barriers that are not over, and tasks whose parts of them were taken here."""
        self._submitted: list[Future[None]] = []
        self._aborted_max = 0
        self._refused: int | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop uploads and reading. A savepoint that lacks a part because of it is aborted by whoever asked for it."""
        self._closed = True
        self._uploads.shutdown(wait=True)
        for part in self._waiting:
            part.discard()
        self._watch.close()

    # --- the poll thread ----------------------------------------------------------------------------

    def poll(self) -> None:
        """Hear what is new, a few times a second; begin to publish what waited for it."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds - self._polled_seconds < self._poll_seconds:
            return
        self._polled_seconds = now_seconds
        for future in [future for future in self._submitted if future.done()]:
            self._submitted.remove(future)
            future.result()  # what can fail was seen to: anything raised here is a bug
        try:
            self._watch.poll()
        except BrokerUnreachable as error:  # nor does whoever asks for a savepoint reach them
            _LOG.warning("Cannot hear of savepoints: %s", error)
        if self._on_stages is not None:
            self._on_stages(self._watch.stages())
        self._published = {each for each in self._published if not self._watch.is_over(each[0])}
        entry = self._wanted()
        waiting, self._waiting = self._waiting, []
        for part in waiting:
            if entry is not None and part.barrier_id == entry.barrier_id:
                self._submit(part, entry)
            elif self._watch.is_over(part.barrier_id):
                part.discard()
            else:
                self._waiting.append(part)
        if entry is not None and self._clock.now_ms() > entry.deadline_ms + _OVERDUE_MS:
            self._abort(entry.barrier_id, "whoever asked for it has not ended it in time")

    def divided(self, task: Task, batch: RecordBatch) -> list[tuple[RecordBatch, int | None]]:
        """The batch, divided before records behind a barrier whose point this task must commit first."""
        if not batch.headers or not task.wiring.is_rekeyed:
            return [(batch, None)]
        taken = task.barrier_id_max

        def is_due(barrier_id: int) -> bool:
            nonlocal taken
            due = barrier_id > taken and not self._watch.is_over(barrier_id)
            taken = barrier_id if due else taken
            return due

        return list(split_at_barriers(batch, is_due))

    @property
    def is_wanted(self) -> bool:
        """True while a savepoint is being made in which tasks are to have part."""
        return self._wanted() is not None

    def is_barrier_due(self, task: Task) -> bool:
        """Whether ``take_part`` would have the task commit its barrier point now, in a commit of its own."""
        entry = self._wanted()
        is_of_generation = entry is not None and entry.generation == task.wiring.generation
        return entry is not None and is_of_generation and self._is_due(task, entry)

    def take_part(self, task: Task, group: InputGroup, starts: Mapping[TopicPartition, int]) -> None:
        """Let a task leave a barrier that is over, and commit its point of one that it has heard of.

        Raises what a commit raises.
        """
        if task.barrier_point is not None and self._watch.is_over(task.barrier_point.barrier_id):
            task.leave_barrier()
        entry = self._wanted()
        if entry is None or entry.generation != task.wiring.generation:
            return
        if self._is_due(task, entry):
            self.commit_barrier_point(task, entry.barrier_id, group, starts)
        elif (
            task.barrier_point is not None
            and task.barrier_point.barrier_id == entry.barrier_id
            and task.barrier_point.is_last_commit
            and (entry.barrier_id, task.wiring.id) not in self._published
        ):
            self._capture(
                task, entry.barrier_id
            )  # an earlier owner committed the point; the state is still that of it

    def commit_barrier_point(
        self, task: Task, barrier_id: int, group: InputGroup, starts: Mapping[TopicPartition, int]
    ) -> None:
        """Commit a task's barrier point, and keep what is to be published. Raises what a commit raises."""
        reach("barrier.before_commit")
        task.commit_barrier_point(barrier_id, group, starts)
        reach("barrier.after_commit")
        self._capture(task, barrier_id)

    # --- inside -------------------------------------------------------------------------------------

    def _is_due(self, task: Task, entry: BarrierEntry) -> bool:
        """Tasks behind a repartition topic commit their points when they meet a record that is behind the barrier."""
        return not task.wiring.is_rekeyed and task.barrier_id_max < entry.barrier_id

    def _wanted(self) -> BarrierEntry | None:
        """The barrier that is open, if this worker's own settings allow its location; else the savepoint is aborted."""
        entry = self._watch.open
        if entry is None or entry.barrier_id == self._refused:
            return None
        try:
            self._allowed.resolve(entry.location)
        except ConfigError as error:
            self._refused = entry.barrier_id
            _LOG.warning("The savepoint %r is refused: %s", entry.savepoint, error)
            self._abort(
                entry.barrier_id,
                f"the settings of a worker do not allow its location {shown(entry.location)}",
            )
            return None
        return entry

    def _capture(self, task: Task, barrier_id: int) -> None:
        wiring = task.wiring
        self._published.add((barrier_id, wiring.id))
        try:
            taken = None
            if wiring.changelogs:
                folder = self._folder(wiring)
                taken = take_checkpoint_in(folder, task.stores, wiring.changelogs, wiring.topic_ids)
        except (StateflowError, OSError) as error:
            self._abort(barrier_id, f"the state of {wiring.id} could not be copied: {error}")
            return
        reach("barrier.after_checkpoint")
        part = _PendingPart(barrier_id, wiring, task.committed, taken)
        entry = self._wanted()
        if entry is not None and entry.barrier_id == barrier_id:
            self._submit(part, entry)
        else:
            self._waiting.append(part)

    def _submit(self, part: _PendingPart, entry: BarrierEntry) -> None:
        self._submitted.append(self._uploads.submit(self._publish, part, entry))

    def _publish(self, part: _PendingPart, entry: BarrierEntry) -> None:
        wiring = part.wiring
        try:
            objects = open_objects(self._allowed.resolve(entry.location))
            saved = SavepointObjects(objects, self._app, entry.savepoint, entry.barrier_id, self._clock)
            image = None
            if part.taken is not None:
                images = saved.images(wiring.generation, wiring.id)
                image = publish_image(part.taken, images, part.position, saved.id, lambda: self._closed)
            reach("barrier.before_part")
            task = saved_task(wiring.id, wiring.stage.name, wiring.partition, part.position, image)
            saved.put_part(Part(number=entry.barrier_id, generation=wiring.generation, task=task))
            reach("barrier.after_part")
            _LOG.info("Task %s has published its part of the savepoint %r.", wiring.id, saved.name)
        except Interrupted:
            _LOG.info("Task %s was stopped before its part of a savepoint was sent.", wiring.id)
        except (StateflowError, OSError) as error:
            self._abort_now(entry.barrier_id, f"{wiring.id} could not publish its part: {error}")
        finally:
            part.discard()

    def _abort(self, barrier_id: int, why: str) -> None:
        if barrier_id > self._aborted_max:
            self._aborted_max = barrier_id
            self._submitted.append(self._uploads.submit(self._abort_now, barrier_id, why))

    def _abort_now(self, barrier_id: int, why: str) -> None:
        _LOG.warning("The savepoint of barrier %d is aborted: %s.", barrier_id, why)
        try:
            abort_savepoint(ControlTopic(self._cluster, self._app), barrier_id, why)
        except StateflowError as error:
            _LOG.warning("That could not be written down, whoever waits for it will see no part: %s", error)


def publish_image(
    taken: Taken,
    images: TaskImages,
    position: InputPosition,
    savepoint: str,
    cancelled: Callable[[], bool],
) -> SavedImage:
    """Upload a checkpoint as a task's image in a savepoint. Raises ``Interrupted``."""
    offsets = {str(source): offset_next for source, offset_next in position.offsets.items()}
    published = taken.publish(images, offsets, cancelled, savepoint=savepoint)
    return SavedImage(manifest_sha256=published.manifest.sha256, size_bytes=published.manifest.size_bytes)


def saved_task(
    task: str,
    stage: str,
    partition: int,
    position: InputPosition,
    image: SavedImage | None,
) -> SavedTask:
    """A task as savepoints have it. Its barrier point is left out: it means nothing elsewhere."""
    inputs = tuple(
        SavedInput(topic=source.topic, partition=source.partition, offset_next=offset_next)
        for source, offset_next in sorted(position.offsets.items())
    )
    event_time = to_metadata(position.without_barrier_point())
    return SavedTask(
        task=task, stage=stage, partition=partition, inputs=inputs, image=image, event_time=event_time
    )


def abort_savepoint(control: ControlTopic, barrier_id: int | None, why: str) -> None:
    """Abort the savepoint that is being made; nothing when it has ended otherwise. ``barrier_id`` None: any."""

    def decide(catalog: Catalog | None) -> list[CatalogItem]:
        barrier = None if catalog is None else catalog.barrier
        if barrier is None or barrier.state != "open" or barrier_id not in (None, barrier.barrier_id):
            return []
        return [msgspec.structs.replace(barrier, state="aborted", reason=why)]

    control.change(decide)
