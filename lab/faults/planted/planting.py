"""How each of the planted bugs gets into the code: by replacing one function of it, for as long as a scope lasts.

Nothing here is reachable from the library itself; it has no switch for any of these.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from stateflow.catalog import compatibility
from stateflow.changelog.sequences import CommittedEnd
from stateflow.checkpoint import planner
from stateflow.checkpoint.images import TaskImages
from stateflow.checkpoint.manifest import ImageStore
from stateflow.checkpoint.planner import StoreFacts, StorePlan
from stateflow.errors import ProducerFenced
from stateflow.lab.faults.simulation import acting
from stateflow.log.base import Cluster, Committed, GroupMetadata, Writer
from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.memory import MemoryCluster
from stateflow.log.outgoing import Outgoing
from stateflow.record import TopicPartition
from stateflow.routing import RoutingTable
from stateflow.runtime.opening import opening
from stateflow.runtime.opening.fencing import Fencing
from stateflow.runtime.task import commit, takeover, task
from stateflow.runtime.task.context import TaskContext
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker import prepare, topic_watch
from stateflow.store.base import Change, StorePosition
from stateflow.store.memory import MemoryTaskStores
from stateflow.store.scanning import Cursor


@contextmanager
def replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Owner, name and what stands there instead, while the scope lasts."""
    with ExitStack() as stack:
        for owner, name, value in changes:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


@contextmanager
def reset_to_earliest() -> Iterator[None]:
    """As a consumer with ``auto.offset.reset=earliest``: out of range, it silently reads from the start."""
    real = planner.plan_store

    def lenient(facts: StoreFacts) -> StorePlan:
        plan, position = real(facts), facts.position
        is_outside = position is not None and not (
            facts.log.offset_first <= position.offset_next <= facts.log.offset_next
        )
        return replace(plan, action="tail") if is_outside and plan.from_empty else plan

    with replaced((planner, "plan_store", lenient)):
        yield


@contextmanager
def position_apart() -> Iterator[None]:
    """As with an offset file: the position is on disk at once, the content with the next flush."""
    real = MemoryTaskStores.apply

    def apart(
        stores: MemoryTaskStores,
        epoch: Mapping[str, Sequence[Change]],
        positions: Mapping[str, StorePosition],
    ) -> None:
        real(stores, epoch, positions)
        entries, _ = stores._flushed
        stores._flushed = (entries, dict(stores._positions))

    with replaced((MemoryTaskStores, "apply", apart)):
        yield


@contextmanager
def iterator_status_ignored() -> Iterator[None]:
    """As RocksDB's easy iterators: no longer valid is taken for the end."""

    def careless(cursor: Cursor) -> list[tuple[bytes, bytes]]:
        iterator = cursor._iterator
        assert iterator is not None, "the scan has ended"
        chunk: list[tuple[bytes, bytes]] = []
        while len(chunk) < 512 and iterator.valid():
            chunk.append((iterator.key(), iterator.value()))
            iterator.next()
        return chunk

    with replaced((Cursor, "next_chunk", careless)):
        yield


@contextmanager
def topic_id_ignored() -> Iterator[None]:
    """Names alone are compared: at start-up, in every restore, and while workers run."""

    def same(facts: StoreFacts) -> str:
        return facts.topic_id_recorded

    def pass_over(*_: object) -> None:
        return None

    with replaced(
        (planner, "_checked_topic_id", same),
        (prepare, "refuse_recreated_own", pass_over),
        (compatibility, "refuse_recreated_sources", pass_over),
        (topic_watch, "refuse_recreated_own", pass_over),
        (topic_watch, "refuse_recreated_sources", pass_over),
    ):
        yield


@contextmanager
def commit_record_ignored() -> Iterator[None]:
    """Kafka's marker alone decides, as in a protocol without commit records."""
    with replaced((opening, "resolved", lambda _tails, _committed: CommittedEnd(None, {}))):
        yield


@contextmanager
def flush_before_commit() -> Iterator[None]:
    """Step 5 comes before step 4."""
    real = commit.commit_epoch

    def hasty(wiring: TaskWiring, context: Any, writer: Writer, stores: Any, *rest: Any) -> None:
        epoch = {name: changes for name, store in context.stores.items() if (changes := store.changes())}
        stores.apply(epoch, {})
        stores.flush()
        real(wiring, context, writer, stores, *rest)

    with replaced((task, "commit_epoch", hasty)):
        yield


@contextmanager
def image_before_files() -> Iterator[None]:
    """The manifest goes first."""
    real = TaskImages.publish

    def boastful(
        images: TaskImages,
        checkpoint: Path,
        stores: Mapping[str, ImageStore],
        inputs: Mapping[str, int],
        *rest: Any,
    ) -> Any:
        put, objects = images._objects.put, images._objects
        waiting: list[tuple[str, bytes]] = []

        def hold_files(name: str, source: Any) -> None:
            waiting.append((name, source.read()))

        with replaced((objects, "put", hold_files)):
            published = real(images, checkpoint, stores, inputs, *rest)
        for name, content in sorted(waiting, key=lambda item: "/manifests/" not in item[0]):
            put(name, io.BytesIO(content))
        return published

    with replaced((TaskImages, "publish", boastful)):
        yield


@contextmanager
def trim_past_image() -> Iterator[None]:
    """The end of the log is taken for the end of the image."""
    real = acting.trim_to

    def greedy(cluster: MemoryCluster, changelog: TopicPartition, _offset_next: int) -> None:
        real(cluster, changelog, cluster.ranges([changelog])[changelog].offset_next)

    with replaced((acting, "trim_to", greedy)):
        yield


@contextmanager
def ttl_without_tombstone() -> Iterator[None]:
    """Deletions in stores with a time to live are not logged."""
    real = commit._log_changes

    def forgetful(wiring: TaskWiring, writer: Writer, epoch: Mapping[str, Sequence[Change]]) -> None:
        timed = {store.name for store in wiring.stage.stores if store.retention_ms}
        real(
            wiring,
            writer,
            {
                name: [change for change in changes if name not in timed or change[1] is not None]
                for name, changes in epoch.items()
            },
        )

    with replaced((commit, "_log_changes", forgetful)):
        yield


@contextmanager
def unflushed_records() -> Iterator[None]:
    """Commit records are sent while what they prove may still be on its way."""
    with _without_flush(1):
        yield


@contextmanager
def unflushed_offsets() -> Iterator[None]:
    """The group's offsets go out while the commit records may still be on their way."""
    with _without_flush(2):
        yield


@contextmanager
def _without_flush(number: int) -> Iterator[None]:
    real = commit.commit_epoch

    def hasty(wiring: TaskWiring, context: Any, writer: Writer, *rest: Any) -> None:
        real(wiring, context, HastyWriter(writer, number), *rest)

    with replaced((task, "commit_epoch", hasty)):
        yield


class HastyWriter(ForwardingWriter):
    """A writer that leaves out one of its flushes, counted from 1."""

    def __init__(self, inner: Writer, skipped: int) -> None:
        super().__init__(inner)
        self._left = skipped

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Wait, but for the one time."""
        self._left -= 1
        if self._left:
            super().flush(timeout_seconds)


@contextmanager
def key_misrouted() -> Iterator[None]:
    """One key in a thousand goes to the partition beside its own."""
    real = RoutingTable.partitions_of

    def careless(table: RoutingTable, keys: Sequence[bytes]) -> list[int]:
        return [
            (number + 1) % table.partitions if zlib.crc32(key) % 1000 == 0 else number
            for key, number in zip(keys, real(table, keys), strict=True)
        ]

    def rekeyed(context: TaskContext, name: str, keys: Sequence[bytes], *rest: Any) -> None:
        with replaced((RoutingTable, "partitions_of", careless)):
            real_rekey(context, name, keys, *rest)

    real_rekey = TaskContext.rekey_many
    with replaced((TaskContext, "rekey_many", rekeyed)):
        yield


@contextmanager
def commit_record_left_out() -> Iterator[None]:
    """At least once there are no commit records: the group's offsets and Kafka's marker will do."""
    real = takeover.send_commit_records

    def exact_only(wiring: TaskWiring, *rest: Any) -> None:
        if wiring.guarantee == "exactly-once":
            real(wiring, *rest)

    with replaced((commit, "send_commit_records", exact_only)):
        yield


@contextmanager
def zombie_retries() -> Iterator[None]:
    """Fenced, it makes itself a new producer, which fences its successor, and sends again what it has."""
    real = Fencing.writer

    def stubborn(fencing: Fencing, wiring: TaskWiring) -> Writer:
        made = real(fencing, wiring)
        if wiring.guarantee != "exactly-once":
            return made
        return StubbornWriter(made, fencing._cluster, wiring.transactional_id)

    with replaced((Fencing, "writer", stubborn)):
        yield


class StubbornWriter(ForwardingWriter):
    """A writer that does not take being fenced for an answer."""

    def __init__(self, inner: Writer, cluster: Cluster, transactional_id: str) -> None:
        super().__init__(inner)
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._said: list[Callable[[], object]] = []

    def begin(self) -> None:
        """Begin, with nothing said yet."""
        self._said = []
        self._say(lambda: self.inner.begin())

    def append(self, records: Outgoing) -> None:
        """Send."""
        self._say(lambda: self.inner.append(records))

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, Committed],
        group: str,
        member: GroupMetadata | None,  # noqa: ARG002 - the bug: it would tell that the member is gone
    ) -> None:
        """Add input offsets, as nobody in particular."""
        self._say(lambda: self.inner.send_offsets(offsets, group, None))

    def commit(self, timeout_seconds: float = 60.0) -> Any:
        """Commit, if need be in a transaction of a new producer."""
        try:
            return self.inner.commit(timeout_seconds)
        except ProducerFenced:
            self._again()
            return self.inner.commit(timeout_seconds)

    def _say(self, call: Callable[[], object]) -> None:
        self._said.append(call)
        try:
            call()
        except ProducerFenced:
            self._again()

    def _again(self) -> None:
        self.inner = self._cluster.writer(self._transactional_id)
        for call in self._said:
            call()
