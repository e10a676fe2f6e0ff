"""A worker's part in cuts through the running application: taking places, and publishing what stands there.

A cut is asked for on the control topic. Tasks that read sources take their places when they hear of it; a task behind a
repartition topic when it meets the first record that is behind the cut, and before it processes that record (the
snapshot of Lai and Yang, 1987: messages carry the colour of their sender, and channels need not wait for each other).
A place is a commit, and a checkpoint of the state right after it; its upload goes on beside the poll thread.

What a task reads afterwards that was sent before the cut belongs to the cut as well: input in flight, which whoever
made the cut collects from the repartition topics. Until the cut is over they are therefore not trimmed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.encoding import CatalogItem
from stateflow.catalog.model import Catalog, CutEntry
from stateflow.catalog.watch import CutWatch
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
from stateflow.runtime.snapshots.barriers import divided
from stateflow.runtime.task.commit import InputGroup
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring

_LOG = logging.getLogger(__name__)

_OVERDUE_MS = 30_000
"""How long after its deadline a cut that nobody ended is aborted by a worker; clocks may differ by so much."""

CutFolder = Callable[[TaskWiring], Path]
"""Where the checkpoint of a task may be made: on the disk of its database, if it has one."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A place taken, not published yet."""

    number: int
    wiring: TaskWiring
    position: InputPosition
    taken: Taken | None

    def discard(self) -> None:
        """Take the checkpoint off the disk."""
        if self.taken is not None:
            self.taken.discard()


class Cuts:
    """What one worker does for cuts. Its methods belong to the poll thread; uploads go on in a thread of its own."""

    def __init__(
        self,
        cluster: Cluster,
        app: str,
        clock: Clock,
        folder: CutFolder,
        allowed: AllowedLocations,
        *,
        poll_seconds: float = 0.5,
        uploads: Executor | None = None,
    ) -> None:
        self._cluster = cluster
        self._app = app
        self._clock = clock
        self._folder = folder
        self._allowed = allowed
        self._poll_seconds = poll_seconds
        self._polled_seconds = float("-inf")
        self._uploads = uploads or ThreadPoolExecutor(1, thread_name_prefix="savepoint")
        self._watch = CutWatch(cluster, app)
        self._waiting: list[_Place] = []
        self._published: set[tuple[int, str]] = set()
        self._submitted: list[Future[None]] = []
        self._aborted_max = 0
        self._refused: int | None = None
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop uploads and reading. A cut that lacks a part because of it is aborted by whoever asked for it."""
        self._closed = True
        self._uploads.shutdown(wait=True)
        for place in self._waiting:
            place.discard()
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
        entry = self._wanted()
        waiting, self._waiting = self._waiting, []
        for place in waiting:
            if entry is not None and place.number == entry.number:
                self._submit(place, entry)
            elif self._watch.is_over(place.number):
                place.discard()
            else:
                self._waiting.append(place)
        if entry is not None and self._clock.now_ms() > entry.deadline_ms + _OVERDUE_MS:
            self._abort(entry.number, "whoever asked for it has not ended it in time")

    def parts(self, task: Task, batch: RecordBatch) -> list[tuple[RecordBatch, int | None]]:
        """The batch, divided before records that are behind a cut in which this task must take its place first."""
        if not batch.headers or not task.wiring.is_rekeyed:
            return [(batch, None)]
        taken = task.cut_number_max

        def is_due(number: int) -> bool:
            nonlocal taken
            due = number > taken and not self._watch.is_over(number)
            taken = number if due else taken
            return due

        return list(divided(batch, is_due))

    def awaits_place(self, task: Task) -> bool:
        """Whether ``take_part`` would let the task take its place now, in a commit of its own."""
        entry = self._wanted()
        is_of_cut = entry is not None and entry.generation == task.wiring.generation
        return entry is not None and is_of_cut and self._is_due(task, entry)

    def take_part(self, task: Task, group: InputGroup, starts: Mapping[TopicPartition, int]) -> None:
        """Let a task leave a cut that is over, and take its place in one that it has heard of.

        Raises what a commit raises.
        """
        if task.place is not None and self._watch.is_over(task.place.number):
            task.leave_cut()
        entry = self._wanted()
        if entry is None or entry.generation != task.wiring.generation:
            return
        if self._is_due(task, entry):
            self.take_place(task, entry.number, group, starts)
        elif (
            task.place is not None
            and task.place.number == entry.number
            and task.place.is_last_commit
            and (entry.number, task.wiring.id) not in self._published
        ):
            self._capture(
                task, entry.number
            )  # an earlier owner took the place; the state is still that of it

    def take_place(
        self, task: Task, number: int, group: InputGroup, starts: Mapping[TopicPartition, int]
    ) -> None:
        """Commit a task's place in a cut, and keep what is to be published. Raises what a commit raises."""
        reach("cut.before_place")
        task.take_place(number, group, starts)
        reach("cut.after_place")
        self._capture(task, number)

    # --- inside -------------------------------------------------------------------------------------

    def _is_due(self, task: Task, entry: CutEntry) -> bool:
        """Tasks behind a repartition topic take their places when they meet a record that is behind the cut."""
        return not task.wiring.is_rekeyed and task.cut_number_max < entry.number

    def _wanted(self) -> CutEntry | None:
        """The cut that is open, if its place is one that this worker's own settings allow; else it is given up."""
        entry = self._watch.open
        if entry is None or entry.number == self._refused:
            return None
        try:
            self._allowed.resolve(entry.location)
        except ConfigError as error:
            self._refused = entry.number
            _LOG.warning("The savepoint %r is refused: %s", entry.savepoint, error)
            self._abort(
                entry.number, f"the settings of a worker do not allow its place {shown(entry.location)}"
            )
            return None
        return entry

    def _capture(self, task: Task, number: int) -> None:
        wiring = task.wiring
        self._published.add((number, wiring.id))
        try:
            taken = None
            if wiring.changelogs:
                folder = self._folder(wiring)
                taken = take_checkpoint_in(folder, task.stores, wiring.changelogs, wiring.topic_ids)
        except (StateflowError, OSError) as error:
            self._abort(number, f"the state of {wiring.id} could not be copied: {error}")
            return
        reach("cut.after_checkpoint")
        place = _Place(number, wiring, task.committed, taken)
        entry = self._wanted()
        if entry is not None and entry.number == number:
            self._submit(place, entry)
        else:
            self._waiting.append(place)

    def _submit(self, place: _Place, entry: CutEntry) -> None:
        self._submitted.append(self._uploads.submit(self._publish, place, entry))

    def _publish(self, place: _Place, entry: CutEntry) -> None:
        wiring = place.wiring
        try:
            objects = open_objects(self._allowed.resolve(entry.location))
            saved = SavepointObjects(objects, self._app, entry.savepoint, entry.number, self._clock)
            image = None
            if place.taken is not None:
                images = saved.images(wiring.generation, wiring.id)
                image = publish_image(place.taken, images, place.position, saved.id, lambda: self._closed)
            reach("cut.before_part")
            task = saved_task(wiring.id, wiring.stage.name, wiring.partition, place.position, image)
            saved.put_part(Part(number=entry.number, generation=wiring.generation, task=task))
            reach("cut.after_part")
            _LOG.info("Task %s has published its part of the savepoint %s.", wiring.id, saved.id)
        except Interrupted:
            _LOG.info("Task %s was stopped before its part of a savepoint was sent.", wiring.id)
        except (StateflowError, OSError) as error:
            self._abort_now(entry.number, f"{wiring.id} could not publish its part: {error}")
        finally:
            place.discard()

    def _abort(self, number: int, why: str) -> None:
        if number > self._aborted_max:
            self._aborted_max = number
            self._submitted.append(self._uploads.submit(self._abort_now, number, why))

    def _abort_now(self, number: int, why: str) -> None:
        _LOG.warning("The savepoint in cut %d is given up: %s.", number, why)
        try:
            abort_cut(ControlTopic(self._cluster, self._app), number, why)
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
    """A task as savepoints have it. Its place in the cut is left out: it means nothing elsewhere."""
    inputs = tuple(
        SavedInput(topic=source.topic, partition=source.partition, offset_next=offset_next)
        for source, offset_next in sorted(position.offsets.items())
    )
    event_time = to_metadata(position.without_cut())
    return SavedTask(
        task=task, stage=stage, partition=partition, inputs=inputs, image=image, event_time=event_time
    )


def abort_cut(control: ControlTopic, number: int | None, why: str) -> None:
    """End a cut that is open as aborted; nothing when it has ended otherwise. ``number`` None means whichever is."""

    def decide(catalog: Catalog | None) -> list[CatalogItem]:
        cut = None if catalog is None else catalog.cut
        if cut is None or cut.state != "open" or number not in (None, cut.number):
            return []
        return [msgspec.structs.replace(cut, state="aborted", reason=why)]

    control.change(decide)
