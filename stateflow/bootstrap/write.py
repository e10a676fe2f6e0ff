"""State written as rows: a savepoint made by a batch job, from which an application starts.

1. The plan is fixed: the application's stages and stores as its code declares them, the routing, the offsets at which
   each source will be read (``bootstrap.plan``).
2. Every row is encoded and checked, and goes to the task that the runtime's own routing names (``bootstrap.encoding``).
3. Each task's database is published as an image (``bootstrap.parts``).
4. The manifest is written last. Before it there is no savepoint; a run that was killed leaves objects that none names.

Nothing is written to Kafka. ``stateflow savepoint restore APP NAME --from LOCATION`` has the application begin with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from stateflow.app import App, load
from stateflow.bootstrap.encoding import Entry
from stateflow.bootstrap.parts import TaskPart, WrittenTask
from stateflow.bootstrap.plan import BootstrapPlan, Sources, TaskOf, make_plan
from stateflow.changelog.position import InputPosition
from stateflow.checkpoint.locations import open_objects
from stateflow.checkpoint.queues import write_records
from stateflow.checkpoint.savepoints import (
    SavedQueue,
    SavedTask,
    Savepoint,
    SavepointObjects,
    find_savepoints,
)
from stateflow.clock import Clock, SystemClock
from stateflow.errors import ConfigError, SavepointFailed
from stateflow.log.base import Cluster
from stateflow.log.client_file import BROKERS, client_settings
from stateflow.memory import memory_shares
from stateflow.runtime.snapshots.savepoint_participant import saved_task

_ROWS_PER_BATCH = 10_000
_GRACE_MS = 3_600_000
_NUMBER_MIN = 1_000_000_000_000
"""Runs are numbered by their time, ms; the barriers of a running application count from 1."""
_HELD_BYTES_MAX = memory_shares().restore_bytes_each(1) // 2
"""Of all tasks together, before they write runs."""

Rows = Any
"""An Arrow table or record batches, a pandas or Polars data frame, a Spark DataFrame, or dictionaries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenState:
    """A savepoint made of rows, or what it would be."""

    app: str
    savepoint: str
    """Its name."""
    location: str
    partitions: int
    """Of the stages behind re-key steps."""
    rows: dict[str, int]
    """By store."""
    rows_by_task: dict[str, int]
    sources: dict[str, int]
    """``topic[partition]`` → offset at which the application begins to read."""
    dry_run: bool


class TablesWriter(Protocol):
    """Encodes and publishes the rows of every store; returns a part for each task that has any."""

    def __call__(
        self, plan: BootstrapPlan, tables: Mapping[str, Rows], clock: Clock, *, dry_run: bool
    ) -> list[WrittenTask]:
        """Write, or with ``dry_run`` only encode, check and count."""
        ...


def write_connected(
    writer: TablesWriter,
    app: App | str,
    tables: Mapping[str, Rows],
    *,
    to: str,
    sources: Sources,
    name: str = "bootstrap",
    partitions: int | None = None,
    brokers: str | None = None,
    client_file: str | Path | None = None,
    dry_run: bool = False,
) -> WrittenState:
    """Make a savepoint of tables that ``writer`` takes; the arguments and errors are those of ``write_state``."""
    from stateflow.log.kafka import connect

    loaded = load(app) if isinstance(app, str) else app
    client = {} if client_file is None else client_settings(Path(client_file), loaded.id)
    named = client.pop(BROKERS, None)
    cluster = connect(str(brokers or named or loaded.options.brokers), {**loaded.options.client, **client})
    try:
        return write_rows(
            cluster,
            loaded,
            tables,
            to=to,
            sources=sources,
            clock=SystemClock(),
            name=name,
            partitions=partitions,
            dry_run=dry_run,
            writer=writer,
        )
    finally:
        cluster.close()


def write_rows(
    cluster: Cluster,
    app: App,
    tables: Mapping[str, Rows],
    *,
    to: str,
    sources: Sources,
    clock: Clock,
    name: str = "bootstrap",
    partitions: int | None = None,
    dry_run: bool = False,
    writer: TablesWriter | None = None,
) -> WrittenState:
    """The same on a cluster that is connected; of rows in this process, unless ``writer`` takes others."""
    plan = make_plan(
        cluster,
        app.topology(),
        name=name,
        location=to,
        sources=sources,
        partitions=partitions or app.options.partitions,
        clock=clock,
    )
    return write_planned(plan, tables, clock, writer or written_here, dry_run=dry_run)


def write_planned(
    plan: BootstrapPlan, tables: Mapping[str, Rows], clock: Clock, writer: TablesWriter, *, dry_run: bool
) -> WrittenState:
    """Write the parts with ``writer``, then the manifest."""
    for store in tables:
        plan.encoder(store)
    if not dry_run:
        remove_unfinished(plan, clock)
    parts = {part.saved.task: part for part in writer(plan, tables, clock, dry_run=dry_run)}
    rows = {store: sum(part.rows.get(store, 0) for part in parts.values()) for store in tables}
    if not dry_run:
        _publish(plan, parts, clock)
    return WrittenState(
        app=plan.app,
        savepoint=plan.name,
        location=plan.location,
        partitions=plan.generation.partitions,
        rows=rows,
        rows_by_task={task: sum(part.rows.values()) for task, part in sorted(parts.items())},
        sources={str(source): plan.positions[source] for source in sorted(plan.positions)},
        dry_run=dry_run,
    )


def written_here(
    plan: BootstrapPlan, tables: Mapping[str, Rows], clock: Clock, *, dry_run: bool
) -> list[WrittenTask]:
    """Implements ``TablesWriter`` in this process, with a database for each task open at once."""
    tasks = plan.tasks()
    with ExitStack() as stack:
        parts: dict[tuple[str, int], TaskPart] = {}
        for task in tasks:
            part = TaskPart(plan, task, clock, held_bytes_max=_HELD_BYTES_MAX // len(tasks))
            parts[task.stage, task.partition] = stack.enter_context(part)
        counts: dict[tuple[str, int], dict[str, int]] = {}
        for store, rows in tables.items():
            encoder, stage = plan.encoder(store), plan.catalog.stores[store].stage
            for columns in column_batches(rows):
                for partition, entries in by_partition(encoder.entries(columns)).items():
                    counted = counts.setdefault((stage, partition), {})
                    counted[store] = counted.get(store, 0) + len(entries)
                    if not dry_run:
                        parts[stage, partition].add(store, entries)
        if dry_run:
            return [counted_only(TaskOf(*at), rows) for at, rows in counts.items()]
        return [parts[at].publish() for at in counts]


def counted_only(task: TaskOf, rows: dict[str, int]) -> WrittenTask:
    """The part of a dry run: nothing was written."""
    return WrittenTask(saved_task(task.id, task.stage, task.partition, InputPosition(), None), rows)


def by_partition(entries: Iterable[Entry]) -> dict[int, list[tuple[bytes, bytes]]]:
    """Entries by the partition that has them."""
    found: dict[int, list[tuple[bytes, bytes]]] = {}
    for partition, key, value in entries:
        found.setdefault(partition, []).append((key, value))
    return found


def column_batches(rows: Rows) -> Iterator[dict[str, Sequence[Any]]]:
    """Rows by column, some thousands at a time."""
    if hasattr(rows, "to_arrow"):  # Polars
        rows = rows.to_arrow()
    elif hasattr(rows, "iloc"):  # pandas
        import pyarrow as pa

        rows = pa.Table.from_pandas(rows, preserve_index=False)
    if hasattr(rows, "to_batches"):
        rows = rows.to_batches(max_chunksize=_ROWS_PER_BATCH)
    elif hasattr(rows, "column_names"):
        rows = [rows]  # one record batch
    elif isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise ConfigError(
            f"a {type(rows).__name__} is no table of rows.",
            action="give an Arrow table, a pandas or Polars data frame, a Spark DataFrame, or dictionaries.",
        )
    held: list[Mapping[str, Any]] = []
    for each in rows:
        if isinstance(each, Mapping):
            held.append(each)
            if len(held) == _ROWS_PER_BATCH:
                yield _columns(held)
                held = []
        else:
            yield {name: each.column(name).to_pylist() for name in each.schema.names}
    if held:
        yield _columns(held)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Any]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _check_image(plan: BootstrapPlan, saved: SavepointObjects, task: SavedTask) -> None:
    """An attempt that was believed dead may have published the same part since, in other files."""
    if task.image is None:
        return
    images = saved.images(plan.generation.generation, task.task)
    try:
        manifest = images.load(images.savepoint_name(saved.id))
        is_same = manifest.sha256 == task.image.manifest_sha256 and not images.absent(manifest)
    except FileNotFoundError:  # another run of this name has taken it for what a killed one left
        is_same = False
    if not is_same:
        raise SavepointFailed(
            f"the image of {task.task} at {saved.location} is not the one that was written last.",
            action="write the savepoint again, by one run at a time, and remove no files by hand meanwhile.",
            task=task.task,
        )


def remove_unfinished(plan: BootstrapPlan, clock: Clock) -> None:
    """Remove what killed runs of this name left at the place; younger files are left to `checkpoint gc`."""
    objects = open_objects(plan.location)
    whole = {number for name, number in find_savepoints(objects, plan.app) if name == plan.name}
    pattern = re.compile(
        rf"{re.escape(plan.app)}/(?:g\d+/[^/]+/)?savepoints/{re.escape(plan.name)}\.(\d{{1,18}})(?:\.json|/.*)"
    )
    found = (pattern.fullmatch(info.name) for info in objects.list(plan.app))
    numbers = {int(match[1]) for match in found if match} - whole
    for number in sorted(number for number in numbers if number >= _NUMBER_MIN):
        left = SavepointObjects(objects, plan.app, plan.name, number, clock)
        left.delete(left.image_tasks(), grace_ms=_GRACE_MS)


def _publish(plan: BootstrapPlan, parts: Mapping[str, WrittenTask], clock: Clock) -> None:
    """Tasks without rows have a part, too: it says where they begin to read."""
    saved = plan.objects(clock)
    tasks = []
    for task in plan.tasks():
        if task.id not in parts:
            with TaskPart(plan, task, clock, held_bytes_max=1) as empty:
                tasks.append(empty.publish().saved)
        else:
            tasks.append(parts[task.id].saved)
            _check_image(plan, saved, parts[task.id].saved)
    queues = []
    with TemporaryDirectory(prefix="stateflow-bootstrap-") as folder:
        for stage in plan.catalog.stages.values():
            for step in stage.rekeys:
                for partition in range(plan.catalog.partitions(stage.name)):
                    file = Path(folder) / "queue"
                    records, size_bytes, sha256 = write_records(file, [])
                    saved.put_queue(step.name, partition, file)
                    queues.append(
                        SavedQueue(
                            step=step.name,
                            partition=partition,
                            records=records,
                            size_bytes=size_bytes,
                            sha256=sha256,
                        )
                    )
    catalog = plan.catalog
    saved.publish(
        Savepoint(
            app=plan.app,
            name=plan.name,
            number=plan.number,
            cluster_id=plan.cluster_id,
            generation=plan.generation.generation,
            created_ms=plan.created_ms,
            guarantee=catalog.app.guarantee,
            routing=plan.generation.routing,
            stages=tuple(catalog.stages.values()),
            stores=tuple(catalog.stores.values()),
            source_ids={t: i for stage in catalog.stages.values() for t, i in stage.source_ids.items()},
            tasks=tuple(tasks),
            queues=tuple(queues),
        )
    )
