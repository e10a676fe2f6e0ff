"""The test driver: an application on a memory log with a clock moved by hand, and verbs for what can go wrong.

It runs the real worker, the real tasks, the real restore and the real repartition; only the log is in memory, and
that log passes the same conformance suite as Kafka. One thread, no waiting: the same calls give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from stateflow.catalog.control import ControlTopic
from stateflow.catalog.model import RoutingEntry
from stateflow.catalog.names import task_id
from stateflow.changelog.event_time import Announced
from stateflow.changelog.format import WATERMARK_HEADER
from stateflow.checkpoint.locations import AllowedLocations
from stateflow.checkpoint.savepoints import Savepoint
from stateflow.clock import ManualClock
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.reading import read_topic
from stateflow.operators.steps.headers import HeadersLike, headers_of
from stateflow.partitioner import partition_of
from stateflow.record import Record
from stateflow.runtime.opening.inline import InlineExecutor
from stateflow.runtime.progress.lag import is_drained, source_ends
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.snapshots.savepoint_participant import SavepointParticipant
from stateflow.runtime.task.task import Task
from stateflow.runtime.task.wiring import TaskWiring, Wiring
from stateflow.runtime.worker.prepare import expected_catalog, prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.savepoint.create import create
from stateflow.savepoint.lookup import find_listed, open_listed
from stateflow.savepoint.restore import restore
from stateflow.scale.application_merge import ApplicationMerge
from stateflow.scale.engine import InProcess
from stateflow.scale.start import start
from stateflow.state.decoding import StoreDecoder
from stateflow.state.index import found_keys
from stateflow.state.view import StoreView
from stateflow.store.derived import index_family
from stateflow.store.memory import MemoryTaskStores
from stateflow.times import emitted_ms

if TYPE_CHECKING:
    from stateflow.app import App, Topic

K = TypeVar("K")
V = TypeVar("V")

_STEPS_MAX = 10_000
_SLICE_RECORDS = 10_000
"""Whatever a poll brings is processed at once, so that what a test sees does not depend on speed."""
_EPOCH_2024_MS = 1_704_067_200_000
Disk = dict[tuple[int, str], MemoryTaskStores]
"""The stores on the disk of a worker, by generation and task."""


class Row(NamedTuple, Generic[K, V]):
    """One record of an output topic. Key and value are None where the record has none, whatever the types say."""

    key: K
    value: V
    timestamp_ms: int
    partition: int


class TestDriver:
    """Drives one application. Every verb returns when the application has processed and committed everything.

    Args:
        app: the application, unchanged.
        partitions: of every topic that the application reads or writes, and of its re-keyed stages.
        now_ms: where the clock begins; records get its time unless they bring their own.
        poll_records: how many records the worker processes and commits at a time; all that there are unless given.
        beside: another application's driver, whose log and clock this one shares.
    """

    __test__ = False  # pytest: not a test class

    def __init__(
        self,
        app: App,
        *,
        partitions: int = 4,
        now_ms: int = _EPOCH_2024_MS,
        poll_records: int | None = None,
        beside: TestDriver | None = None,
    ) -> None:
        self.clock: ManualClock = ManualClock(now_ms) if beside is None else beside.clock
        self.cluster: MemoryCluster = MemoryCluster(clock=self.clock) if beside is None else beside.cluster
        self._app = app
        self._partitions = partitions
        self._poll_records = poll_records
        self._topology = app.topology()
        self._scratch = TemporaryDirectory(prefix="stateflow-driver-")
        self._place = f"{self._scratch.name}/savepoints"
        self._disks: Disk = {}
        topics = {topic for stage in self._topology.stages for topic in stage.topics}
        known = self.cluster.list_topics()
        self.cluster.create(TopicSpec(topic, partitions) for topic in sorted(topics) if topic not in known)
        self._wiring, self._worker = self._start()

    # --- what goes in and comes out ------------------------------------------------------------------

    def send(
        self,
        topic: Topic[Any, Any],
        *values: Any,
        key: Any = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> None:
        """Send values to a source topic and process them; the clock's time is theirs unless given."""
        stamp_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        self.send_many(topic, [(key, value, stamp_ms) for value in values], headers=headers)

    def send_many(
        self,
        topic: Topic[Any, Any],
        rows: Iterable[tuple[Any, Any, int]],
        *,
        partitions: Sequence[int] | int = -1,
        headers: HeadersLike = (),
    ) -> None:
        """Send (key, value, timestamp in ms) to a source topic and process all of them together, in their order.

        ``partitions`` is one for all or one for each row; −1 lets the key choose. A value of None is a tombstone.
        ``headers`` are those of every record. Raises ``ValueError`` or ``TypeError`` for a timestamp that is none.
        """
        sent, own = list(rows), headers_of(headers)
        chosen = [partitions] * len(sent) if isinstance(partitions, int) else partitions
        writer = self.cluster.writer()
        for (key, value, stamp_ms), partition in zip(sent, chosen, strict=True):
            encoded_key = None if key is None else topic.key.encode(key)
            encoded = None if value is None else topic.value.encode(value)
            place: dict[str, int] = {"partition": partition, "timestamp_ms": emitted_ms(stamp_ms)}
            writer.send(topic.name, encoded_key, encoded, **place, headers=own)
        writer.commit()
        writer.close()
        self.run()

    def output(self, topic: Topic[Any, Any]) -> list[Record]:
        """Everything committed to a topic so far, decoded, by partition and offset."""
        return [
            record._replace(
                key=None if record.key is None else topic.key.decode(record.key),
                value=None if record.value is None else topic.value.decode(record.value),
            )
            for record in self._read(topic.name)
        ]

    def rows(self, topic: Topic[K, V]) -> list[Row[K, V]]:
        """The same as rows of the topic's types."""
        return [Row(each.key, each.value, each.timestamp_ms, each.partition) for each in self.output(topic)]

    def state(self, operator: str, state: str | None = None, *, key: Any) -> Any:
        """What a store holds for a key, decoded: value, list, map, or window start (ms) → value; None for nothing.

        ``state`` is the attribute of an operator class; leave it out for an aggregate.
        """
        store = operator if state is None else f"{operator}-{state}"
        entry = self._wiring.catalog.stores[store]
        routing_key = StoreDecoder(entry).routing_key(key)
        task = self._owner(entry.stage, routing_key)
        return StoreView(entry, task.context.store(store)).get(key)

    def find(self, operator: str, state: str, index: str, value: Any) -> list[tuple[Any, Any, Any]]:
        """The entries of which an index gives a value, over all tasks, as (key, part, value).

        The part is the key in a map, None for a ``Value``.
        """
        entry = self._wiring.catalog.stores[f"{operator}-{state}"]
        found: list[tuple[Any, Any, Any]] = []
        for task in self._worker.tasks.values():
            if task.wiring.stage.name == entry.stage:
                stores = task.context.stores
                view = StoreView(entry, stores[entry.name])
                found += view.at(found_keys(stores[index_family(entry.name)], index, value))
        return found

    # --- time ----------------------------------------------------------------------------------------

    def advance(self, *, seconds: float) -> None:
        """Move the clock, and with it what goes by it: timers in processing time, inputs falling idle."""
        self.clock.advance(seconds=seconds)
        self.run()

    def advance_event_time(self, to_ms: int) -> None:
        """Move event time on as if every source had sent a record of then: windows close, timers fire.

        Records with an earlier time are late from then on.
        """
        writer = self.cluster.writer()
        for task in self._wiring.tasks():
            if not task.is_rekeyed:  # the stages behind hear of it from those before them
                for source in task.inputs:
                    header = (WATERMARK_HEADER, Announced(0, to_ms).encode())
                    place = {"partition": source.partition, "timestamp_ms": to_ms}
                    writer.send(source.topic, None, None, **place, headers=(header,))
        writer.commit()
        writer.close()
        self.run()

    def end_input(self) -> None:
        """Declare that all input is there: every timer in event time fires and every window closes, in all stages.

        What is sent afterwards is processed as ever; with an earlier time it is late. A worker that starts anew
        knows nothing of it.
        """
        self._worker.end_input(source_ends(self.cluster, self._wiring.catalog))
        self.run()

    # --- what can go wrong ---------------------------------------------------------------------------

    def crash(self, *, disk_lost: bool = False, disk: Disk | None = None) -> None:
        """The worker's process dies as by SIGKILL; with ``disk_lost`` its machine is gone too.

        ``disk`` is what the next one finds in the place of its own: a copy made before, which lags behind.
        """
        if disk_lost:
            self._disks.clear()
        for stores in self._disks.values():
            stores.crash()
        if disk is not None:
            self._disks = {place: stores.flushed_copy() for place, stores in disk.items()}

    def copy_of_disk(self) -> Disk:
        """The worker's disk as it was flushed last, to be put back by ``crash``."""
        return {place: stores.flushed_copy() for place, stores in self._disks.items()}

    def restore(self) -> None:
        """A successor starts, restores from the changelog and goes on."""
        self._wiring, self._worker = self._start()
        self.run()

    def compact(self) -> None:
        """The broker's cleaner passes over every compacted topic."""
        for topic in self.cluster.list_topics():
            if "compact" in self.cluster.topic_config(topic)["cleanup.policy"]:
                self.cluster.compact(topic)

    def upgrade(self, app: App) -> None:
        """Stop, and start another version of the application on what it left. Raises what a start raises."""
        self.stop()
        self.cluster.end_sessions(self._topology.app)
        self._app, self._topology = app, app.topology()
        self.restore()

    def repartition(self, partitions: int) -> None:
        """Stop, change the partition count of the re-keyed stages as `stateflow scale start` does, start again."""
        self.stop()
        self.cluster.end_sessions(self._topology.app)
        routing = RoutingEntry(kind="modulo", partitions=partitions)
        start(self.cluster, self._topology.app, routing, InProcess(self.cluster), self.clock)
        self.restore()

    def merge(self, other: TestDriver) -> None:
        """Stop both, take the other application's state into this one as `stateflow scale merge` does, start again.

        The other driver is at its end with this.
        """
        for driver in (self, other):
            driver.stop()
            self.cluster.end_sessions(driver._topology.app)
        application_merge = ApplicationMerge(other._topology.app, self._topology.merges)
        routing = self._wiring.catalog.active.routing
        engine = InProcess(self.cluster)
        start(
            self.cluster, self._topology.app, routing, engine, self.clock, application_merge=application_merge
        )
        self.restore()

    def savepoint(self, name: str) -> Savepoint:
        """Make a savepoint of the running application, as `stateflow savepoint create` does."""
        return create(
            self.cluster,
            self._topology.app,
            name,
            self._place,
            self.clock,
            pause=self._turns(),
        )

    def restore_savepoint(self, name: str) -> None:
        """Stop, go back to a savepoint as `stateflow savepoint restore` does, start again and process the rest."""
        self.stop()
        self.cluster.end_sessions(self._topology.app)
        catalog = ControlTopic(self.cluster, self._topology.app).load()
        allowed = AllowedLocations([self._place])
        saved = open_listed(find_listed(catalog, name), self._topology.app, self.clock, allowed)
        savepoint, guarantee = saved.load(), self._app.options.guarantee
        expected = expected_catalog(
            self.cluster, self._topology, guarantee, savepoint.routing.partitions, self.clock
        )
        restore(self.cluster, savepoint, saved, expected, self.clock)
        self.restore()

    def stop(self) -> None:
        """Commit everything and close."""
        self._worker.stop()
        self._worker.run()

    def _turns(self) -> Callable[[float], None]:
        """Turns of the worker's loop in the place of pauses; too many of them are a bug."""
        turns = iter(range(_STEPS_MAX))

        def turn(_seconds: float) -> None:
            if next(turns, None) is None:
                raise AssertionError(f"nothing has come of {_STEPS_MAX} turns of the loop")
            self._worker.step()

        return turn

    # --- inside --------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn the worker's loop until everything is processed and committed."""
        for _ in range(_STEPS_MAX):
            self._worker.step()
            if self._is_at_rest():
                return
        raise AssertionError(f"the application has not come to rest after {_STEPS_MAX} turns of its loop")

    def _is_at_rest(self) -> bool:
        return self._worker.is_quiet and is_drained(self.cluster, self._wiring.catalog)

    def _start(self) -> tuple[Wiring, Worker]:
        wiring = prepare(
            self.cluster, self._topology, self._app.options.guarantee, self._partitions, self.clock
        )
        settings = WorkerSettings(
            state_dir=Path("in-memory"),
            commit_interval_seconds=0,
            poll_timeout_seconds=0,
            slice_records_first=_SLICE_RECORDS,
            slice_records_max=_SLICE_RECORDS,
            slice_records_own_max=_SLICE_RECORDS,
            restore_threads=0,
            flush_interval_seconds=0,
            member="driver",
        )
        if self._poll_records is not None:
            settings = replace(settings, poll_records_max=self._poll_records)
        savepoints = SavepointParticipant(
            self.cluster,
            self._topology.app,
            self.clock,
            lambda task: Path(self._scratch.name) / "checkpoints" / task.id,
            AllowedLocations([self._place]),
            poll_seconds=0,
            uploads=InlineExecutor(),
        )
        return wiring, Worker(
            self.cluster, wiring, self._open_stores, settings, self.clock, savepoints=savepoints
        )

    def _open_stores(self, wiring: TaskWiring, _cancelled: Callable[[], bool]) -> MemoryTaskStores:
        place = (wiring.generation, wiring.id)
        if place not in self._disks:
            self._disks[place] = MemoryTaskStores([store.name for store in wiring.stage.stores], self.clock)
        return self._disks[place]

    def _owner(self, stage: str, routing_key: bytes) -> Task:
        catalog = self._wiring.catalog
        if catalog.is_rekeyed(stage):
            partition = self._wiring.routing.partition_of(routing_key)
        else:
            partition = partition_of(routing_key, catalog.partitions(stage))
        return self._worker.tasks[task_id(stage, partition)]

    def _read(self, topic: str) -> list[Record]:
        records = [record for batch in read_topic(self.cluster, topic) for record in batch.records()]
        return sorted(records, key=lambda record: (record.partition, record.offset))
