"""Filling one partition of a restored application's topics, exactly once, however often it is begun.

Rows come in an order that never changes, so how many are written says where to go on. That number is committed in the
transaction of each chunk, under a group of the restore's own; the transactional id is the partition's, so a second
attempt fences the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from stateflow.catalog.model import KeyLayout, RangeAudit, RoutingEntry
from stateflow.checkpoint.queues import read_records
from stateflow.checkpoint.savepoints import SavedQueue, SavedTask, SavepointObjects
from stateflow.clock import Clock
from stateflow.errors import AuditFailed, SavepointMissing, StateCorrupt
from stateflow.failpoints import reach
from stateflow.log.base import Cluster, Committed, Writer
from stateflow.log.reading import read_range
from stateflow.log.stable_ranges import stable_ranges
from stateflow.record import Record, TopicPartition
from stateflow.scale.audit import Tally, entry_hash
from stateflow.scale.committed_chunks import committed_chunks
from stateflow.scale.placement import Placement
from stateflow.scale.reading import live_state
from stateflow.store.directory import Identity, TaskDirectory
from stateflow.store.resources import RocksResources
from stateflow.store.rocks import RocksTaskStores


@dataclass(frozen=True, slots=True)
class FillTarget:
    """A partition to be filled, and under which names its progress is kept."""

    app: str
    generation: int
    partition: TopicPartition
    topic_id: str
    chunk_records_max: int
    routing: RoutingEntry | None = None
    """Which partition owns a key; None where that is for the producers of a source topic to say."""
    layout: KeyLayout | None = None
    """How the store's keys are made; None for records in flight."""

    @property
    def group(self) -> str:
        """The consumer group that holds the restore's progress."""
        return f"{self.app}-restore-g{self.generation}"

    @property
    def transactional_id(self) -> str:
        """The id under which only the newest attempt may write."""
        return f"{self.group}-{self.partition.topic}-{self.partition.partition}"


def fill_task(
    cluster: Cluster,
    saved: SavepointObjects,
    task: SavedTask,
    generation: int,
    targets: dict[str, FillTarget],
    clock: Clock,
) -> list[RangeAudit]:
    """Write a task's state into its new changelogs, and compare what stands there with the image.

    ``targets`` are by store; stores of the image that are not among them are left out. ``generation`` is the
    savepoint's. Raises ``StateCorrupt`` for a damaged image, ``AuditFailed``.
    """
    if task.image is None:
        return []
    images = saved.images(generation, task.task)
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        place = TaskDirectory(
            Path(scratch) / task.task, Identity("savepoint", "savepoint", generation, task.task)
        )
        place.claim()
        try:
            manifest = images.load(images.savepoint_name(saved.id))
            if manifest.sha256 != task.image.manifest_sha256:
                raise StateCorrupt(
                    f"the image of {task.task} in the savepoint {saved.name!r} is not the one that it was made with.",
                    action="restore from another savepoint.",
                    task=task.task,
                )
            images.fetch(manifest, place.database)
        except FileNotFoundError as error:
            raise _incomplete(saved, task.task) from error
        stores = RocksTaskStores.open(place, manifest.stores, RocksResources(), clock)
        try:
            return [
                _fill_store(cluster, stores, store, target)
                for store, target in targets.items()
                if store in manifest.stores
            ]
        finally:
            stores.close()


def fill_queue(
    cluster: Cluster, saved: SavepointObjects, queue: SavedQueue, target: FillTarget
) -> RangeAudit:
    """Write records in flight into the new repartition topic, in their order, and compare."""
    with TemporaryDirectory(prefix="stateflow-") as scratch:
        file = Path(scratch) / "records"
        try:
            saved.fetch_queue(queue, file)
        except FileNotFoundError as error:
            raise _incomplete(saved, f"{queue.step}-{queue.partition}") from error
        topic, partition = target.partition
        _fill(cluster, target, lambda: read_records(file, topic, partition))
        before = _tally((record.key, record.value) for record in read_records(file, topic, partition))
    log = stable_ranges(cluster, [target.partition])[target.partition]
    after = Tally()
    for batch in read_range(cluster, target.partition, log):
        _check_places(target, [key for key in batch.keys if key is not None])
        after += _tally(zip(batch.keys, batch.values, strict=True))
    return _compared(f"{queue.step}-repartition", target, before, after)


def _fill_store(cluster: Cluster, stores: RocksTaskStores, store: str, target: FillTarget) -> RangeAudit:
    topic, partition = target.partition

    def rows() -> Iterator[Record]:
        for index, (key, value) in enumerate(stores.reader(store).scan()):
            yield Record(topic, partition, index, 0, key, value)

    _fill(cluster, target, rows)
    before = _tally(stores.reader(store).scan())
    log = stable_ranges(cluster, [target.partition])[target.partition]
    after = Tally()
    for state in live_state(cluster, target.partition, log):
        _check_places(target, list(state))
        after += _tally(state.items())
    return _compared(store, target, before, after)


def _fill(cluster: Cluster, target: FillTarget, rows: Callable[[], Iterator[Record]]) -> None:
    """Write what is not written yet of ``rows``, which come in the same order each time."""

    def write(writer: Writer) -> Iterator[int]:
        done = _done(cluster, target)
        rest = islice(rows(), done, None)
        while chunk := list(islice(rest, target.chunk_records_max)):
            writer.begin()
            writer.send_many(
                target.partition.topic,
                [record.key for record in chunk],
                [record.value for record in chunk],
                partitions=target.partition.partition,
                timestamps_ms=[record.timestamp_ms for record in chunk],
                headers=[record.headers for record in chunk],
            )
            done += len(chunk)
            writer.send_offsets({target.partition: Committed(done, target.topic_id)}, target.group, None)
            reach("refill.before_commit")
            writer.commit()
            reach("refill.after_commit")
            yield done

    for _ in committed_chunks(cluster, target.transactional_id, write):
        pass


def _done(cluster: Cluster, target: FillTarget) -> int:
    found = cluster.committed(target.group, [target.partition]).get(target.partition)
    # Progress of an earlier topic of that name says nothing about this one.
    return found.offset_next if found is not None and found.metadata == target.topic_id else 0


def _tally(pairs: Iterable[tuple[bytes, bytes | None]]) -> Tally:
    total, keys = 0, 0
    for key, value in pairs:
        total += entry_hash(key, value)
        keys += 1
    return Tally() + Tally(keys, total)


def _check_places(target: FillTarget, keys: Sequence[bytes]) -> None:
    """Where a running task would look for each key, it must be. Raises ``AuditFailed``."""
    if target.routing is None:
        return
    here, owners = target.partition.partition, Placement(target.layout, target.routing).owners(keys)
    strays = [(key, owner) for key, owner in zip(keys, owners, strict=True) if owner != here]
    if strays:
        key, owner = strays[0]
        raise AuditFailed(
            f"{target.partition} differs from what tasks expect there: {len(strays)} keys of {len(keys)} belong to"
            f" other partitions, as {key[:64].hex()} to {owner}.",
            action="nothing is active, and these keys would never be found: run `stateflow savepoint abort`. The"
            " savepoint's state was not kept by its own routing; restore from another one, and report it.",
            unequal=[(target.partition.topic, here)],
        )


def _compared(name: str, target: FillTarget, before: Tally, after: Tally) -> RangeAudit:
    audit = RangeAudit(
        store=name,
        partition=target.partition.partition,
        keys_before=before.keys,
        keys_after=after.keys,
        hash_before=before.hash,
        hash_after=after.hash,
    )
    if not audit.equal:
        raise AuditFailed(
            f"{target.partition} differs from what the savepoint has of {name}: {before.keys} entries there,"
            f" {after.keys} here.",
            action="nothing is active: run `stateflow savepoint abort`, then restore again. If it differs again, keep"
            " the topics and report it.",
            unequal=[(name, target.partition.partition)],
        )
    return audit


def _incomplete(saved: SavepointObjects, what: str) -> SavepointMissing:
    return SavepointMissing(
        f"the savepoint {saved.name!r} at {saved.location} lacks what belongs to {what}.",
        action="see `stateflow savepoint verify`; restore from another one.",
        savepoint=saved.name,
    )


def total_audit(rows: Sequence[RangeAudit]) -> tuple[int, int]:
    """Live keys of all stores, and records in flight."""
    queues = sum(row.keys_after for row in rows if row.store.endswith("-repartition"))
    return sum(row.keys_after for row in rows) - queues, queues
