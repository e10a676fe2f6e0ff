"""Savepoints in an object store: the parts that tasks publish, input in flight, and the manifest that makes them one.

Objects below ``<app>/savepoints/<name>.<number>/``: ``parts/<task>.json`` for each task, ``queues/<step>-<partition>``
for records that were on their way between two stages, ``savepoint.json`` for the whole. That one is written last: a
savepoint whose manifest is there is whole. State is kept as images are, beside them (``images.py``).
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stateflow.catalog.checks import check_entry, check_routing
from stateflow.catalog.model import Guarantee, RoutingEntry, StageEntry, StoreEntry
from stateflow.catalog.names import SAVEPOINT_NAME, task_id
from stateflow.catalog.older import upgraded_stage
from stateflow.changelog.position import InputPosition, from_metadata
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.objects import ObjectStore, read_at_most
from stateflow.clock import Clock
from stateflow.errors import SavepointMissing, StateCorrupt
from stateflow.record import TopicPartition, is_topic_name

FORMAT_VERSION = 2
"""Format 1, of version 0.1, is read: it had the event time beside each input, and stages with one input."""
_MANIFEST_BYTES_MAX = 256 << 20
_CHUNK_BYTES = 1 << 20

_UNREADABLE = (msgspec.DecodeError, LookupError, TypeError, AttributeError, ValueError, RecursionError)

_Form = TypeVar("_Form", bound="Part | Savepoint")


class _Format(msgspec.Struct, frozen=True):
    """What tells by which rules the rest is read."""

    format: int | None = None


class SavedInput(msgspec.Struct, frozen=True, kw_only=True):
    """How far one input partition of a task was processed."""

    topic: str
    partition: int
    offset_next: int


class SavedImage(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task: its image's manifest is found by task and savepoint, and known by its hash."""

    manifest_sha256: str
    size_bytes: int


class SavedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a savepoint: its barrier point, and the state there."""

    task: str
    stage: str
    partition: int
    inputs: tuple[SavedInput, ...]
    image: SavedImage | None
    """None for a task that has no state, or has never written any."""
    event_time: str = ""
    """What the task's input position said besides the offsets, as in an offset's metadata."""

    def position(self) -> InputPosition:
        """Where it stood in its input. Raises ``StateCorrupt``."""
        offsets = {TopicPartition(at.topic, at.partition): at.offset_next for at in self.inputs}
        return replace(from_metadata(self.event_time), offsets=offsets)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one task of a running application contributes."""

    number: int
    """The barrier's id."""
    generation: int
    task: SavedTask
    format: int = FORMAT_VERSION


class SavedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Records in flight between two stages: sent before the barrier, not processed at the reader's barrier point."""

    step: str
    partition: int
    records: int
    size_bytes: int
    sha256: str


class Savepoint(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest: one consistent cut (Chandy and Lamport's word) through a whole application."""

    app: str
    name: str
    number: int
    cluster_id: str
    generation: int
    created_ms: int
    guarantee: Guarantee
    routing: RoutingEntry
    stages: tuple[StageEntry, ...]
    stores: tuple[StoreEntry, ...]
    source_ids: dict[str, str]
    """Source topic → its Kafka topic id: the offsets are those of that topic."""
    tasks: tuple[SavedTask, ...]
    queues: tuple[SavedQueue, ...]
    format: int = FORMAT_VERSION

    @property
    def id(self) -> str:
        """``<name>.<number>``: no two savepoints of an application have the same."""
        return savepoint_id(self.name, self.number)

    @property
    def size_bytes(self) -> int:
        """Bytes of all state and records."""
        images = sum(task.image.size_bytes for task in self.tasks if task.image is not None)
        return images + sum(queue.size_bytes for queue in self.queues)

    @property
    def records_in_flight(self) -> int:
        """Records between stages."""
        return sum(queue.records for queue in self.queues)


def savepoint_id(name: str, number: int) -> str:
    """``<name>.<number>``."""
    return f"{name}.{number}"


class SavepointObjects:
    """One savepoint's objects, whole or not yet."""

    def __init__(self, objects: ObjectStore, app: str, name: str, number: int, clock: Clock) -> None:
        self.name = name
        self.id = savepoint_id(name, number)
        if not SAVEPOINT_NAME.fullmatch(name) or not is_topic_name(app):  # they become names of objects
            raise _refused(
                self.id, f"it has a name {name!r}, or the application one {app!r}, that none can have"
            )
        self._objects = objects
        self._app = app
        self._clock = clock
        self._folder = f"{app}/savepoints/{self.id}"

    @property
    def location(self) -> str:
        """The place, for people."""
        return self._objects.location

    def images(self, generation: int, task: str) -> TaskImages:
        """The images of one task of the application at this place."""
        return TaskImages(self._objects, self._app, generation, task, self._clock)

    # --- parts ------------------------------------------------------------------------------------

    def put_part(self, part: Part) -> None:
        """Publish what a task contributes; again, by another owner of the same commit, it says the same."""
        self._objects.put(f"{self._folder}/parts/{part.task.task}.json", io.BytesIO(_encoded(part)))

    def part_tasks(self) -> set[str]:
        """Tasks whose parts are there."""
        found = self._objects.list(f"{self._folder}/parts")
        return {info.name.rpartition("/")[2].removesuffix(".json") for info in found}

    def load_part(self, task: str) -> Part:
        """One task's part, checked. Raises ``StateCorrupt``, ``FileNotFoundError``."""
        name = f"{self._folder}/parts/{task}.json"
        part = _decoded(self._read(name), Part, name)
        if part.task.task != task or savepoint_id(self.id.rpartition(".")[0], part.number) != self.id:
            raise _refused(name, f"it is the part of {part.task.task} behind barrier {part.number}")
        return part

    # --- records in flight ----------------------------------------------------------------------------

    def put_queue(self, step: str, partition: int, file: Path) -> None:
        """Store the records in flight of one partition."""
        with file.open("rb") as source:
            self._objects.put(self._queue(step, partition), source)

    def fetch_queue(self, queue: SavedQueue, file: Path) -> None:
        """Copy the records in flight of one partition to ``file``, and make sure that they are what was stored.

        Raises ``StateCorrupt`` when they are not, ``FileNotFoundError``.
        """
        left_bytes = queue.size_bytes + 1  # one more: a grown object is noticed, and never fills the disk
        with self._objects.open(self._queue(queue.step, queue.partition)) as source, file.open("wb") as sink:
            while left_bytes > 0 and (chunk := source.read(min(_CHUNK_BYTES, left_bytes))):
                sink.write(chunk)
                left_bytes -= len(chunk)
        with file.open("rb") as copy:
            digest = hashlib.file_digest(copy, "sha256").hexdigest()
        if left_bytes != 1 or digest != queue.sha256:
            raise StateCorrupt(
                f"the records in flight of {queue.step}-{queue.partition} in the savepoint {self.id} are damaged.",
                action="restore from another savepoint.",
                savepoint=self.id,
            )

    # --- the whole ------------------------------------------------------------------------------------

    def publish(self, savepoint: Savepoint) -> None:
        """Make the savepoint be there. Everything it names must be."""
        encoded = _encoded(savepoint)
        _checked(_decoded(encoded, Savepoint, self.id), self.id)  # what we could not read must not be there
        self._objects.put(f"{self._folder}/savepoint.json", io.BytesIO(encoded))

    def load(self) -> Savepoint:
        """The manifest, checked. Raises ``SavepointMissing``, and ``StateCorrupt`` for what no honest writer wrote."""
        name = f"{self._folder}/savepoint.json"
        try:
            found = _decoded(self._read(name), Savepoint, name)
        except FileNotFoundError as error:
            raise SavepointMissing(
                f"there is no savepoint {self.id} of {self._app!r} at {self.location}.",
                action="see `stateflow savepoint list`, and check the place with --from.",
                app=self._app,
                savepoint=self.id,
            ) from error
        if (found.app, found.id) != (self._app, self.id):
            raise _refused(name, f"it is the manifest of {found.app} {found.id}")
        return _checked(found, name)

    def delete(self, tasks: Mapping[str, int], *, grace_ms: int) -> None:
        """Remove everything, the manifest first: what is left of an interrupted deletion is no savepoint.

        So goes what uploads have left unfinished: one that is still under way fails, and would be for nobody.
        ``tasks`` gives the generation of each task that may have an image in it.
        """
        self._objects.delete(f"{self._folder}/savepoint.json")
        for task, generation in tasks.items():
            self.images(generation, task).forget_savepoint(self.id, grace_ms=grace_ms)
        for info in [*self._objects.list(self._folder), *self._objects.unfinished(self._folder)]:
            self._objects.delete(info.name)

    def image_tasks(self) -> dict[str, int]:
        """Tasks that have an image of this savepoint, and their generation, as the objects' names tell."""
        pattern = re.compile(rf"{re.escape(self._app)}/g(\d+)/([^/]+)/savepoints/{re.escape(self.id)}\.json")
        matches = (pattern.fullmatch(info.name) for info in self._objects.list(self._app))
        return {match[2]: int(match[1]) for match in matches if match}

    def _queue(self, step: str, partition: int) -> str:
        return f"{self._folder}/queues/{step}-{partition}"

    def _read(self, name: str) -> bytes:
        data = read_at_most(self._objects, name, _MANIFEST_BYTES_MAX)
        if len(data) > _MANIFEST_BYTES_MAX:
            raise _refused(name, f"it is larger than {_MANIFEST_BYTES_MAX} bytes")
        return data


def find_savepoints(objects: ObjectStore, app: str) -> list[tuple[str, int]]:
    """Name and number of every whole savepoint of an application at a place, oldest first."""
    found = []
    for info in objects.list(f"{app}/savepoints"):
        match = re.fullmatch(rf".*/({SAVEPOINT_NAME.pattern})\.(\d{{1,18}})/savepoint\.json", info.name)
        if match:
            found.append((match[1], int(match[2])))
    return sorted(found, key=lambda item: item[1])


def _encoded(thing: Part | Savepoint) -> bytes:
    return msgspec.json.format(msgspec.json.encode(thing), indent=1)


def _decoded(data: bytes, form: type[_Form], where: str) -> _Form:
    try:
        written = msgspec.json.decode(data, type=_Format).format
        if written == FORMAT_VERSION:
            return msgspec.json.decode(data, type=form)
        if written == 1:
            return msgspec.convert(_upgraded(msgspec.json.decode(data, type=dict[str, Any])), type=form)
    except _UNREADABLE as error:
        raise _refused(where, f"it cannot be read ({error})") from error
    raise _refused(where, f"its format is {written}, this version reads 1 and {FORMAT_VERSION}")


def _upgraded(fields: dict[str, Any]) -> dict[str, Any]:
    found = {**fields, "format": FORMAT_VERSION}
    if "task" in fields:
        found["task"] = _upgraded_task(fields["task"])
    if "tasks" in fields:
        found["tasks"] = [_upgraded_task(task) for task in fields["tasks"]]
        found["stages"] = [upgraded_stage(stage) for stage in fields["stages"]]
    return found


def _upgraded_task(task: dict[str, Any]) -> dict[str, Any]:
    said = [at.get("metadata", "") for at in task.get("inputs", ())]
    return {**task, "event_time": next(filter(None, said), "")}


def _checked(found: Savepoint, where: str) -> Savepoint:
    """``found``, if names in it are names, numbers are possible, and it has every task and queue exactly once."""
    stages = {stage.name: stage for stage in found.stages}
    try:
        check_routing(found.routing)
        for stage in found.stages:
            check_entry(found.app, stage)
        for store in found.stores:
            check_entry(found.app, store)
    except ValueError as error:
        raise _refused(where, str(error)) from error
    for name in (found.app, *found.source_ids):
        if not is_topic_name(name):
            raise _refused(where, f"it has a name {name!r}, which no topic can have")
    if any(store.stage not in stages for store in found.stores):
        raise _refused(where, "it has a store of no stage")
    count = found.routing.partitions
    tasks_of = {
        name: count if stage.rekeys else stage.source_partitions or 0 for name, stage in stages.items()
    }
    tasks = {
        (task.stage, task.partition)
        for task in found.tasks
        if task.task == task_id(task.stage, task.partition)
    }
    if not len(tasks) == len(found.tasks) == sum(tasks_of.values()) or not all(
        0 <= partition < tasks_of.get(stage, 0) for stage, partition in tasks
    ):
        raise _refused(where, "its tasks are not those of its stages")
    steps = {step.name for stage in found.stages for step in stage.rekeys}
    queues = {(queue.step, queue.partition) for queue in found.queues}
    if not len(queues) == len(found.queues) == len(steps) * count or not all(
        step in steps and 0 <= partition < count for step, partition in queues
    ):
        raise _refused(where, "its queues are not those of its stages")
    numbers = [at.offset_next for task in found.tasks for at in task.inputs]
    numbers += [n for queue in found.queues for n in (queue.records, queue.size_bytes)]
    if any(number < 0 for number in numbers):
        raise _refused(where, "it has a negative number")
    return found


def _refused(where: str, why: str) -> StateCorrupt:
    return StateCorrupt(
        f"the savepoint manifest {where} is refused: {why}.",
        action="restore from another savepoint, and delete this one with `stateflow savepoint delete`.",
        manifest=where,
    )
