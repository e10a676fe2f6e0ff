"""Killing the moving job at every one of its steps, and starting it again: nothing is lost and nothing
doubled.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import GenerationUnfinished, ProducerFenced, TransactionAborted
from stateflow.lab.applications.written import STEP, STORES, WrittenApp
from stateflow.log.base import Appended, Cluster, Committed, TopicSpec, Writer
from stateflow.log.forwarding import ForwardingWriter
from stateflow.log.memory import MemoryCluster
from stateflow.log.outgoing import Outgoing
from stateflow.record import OffsetRange, TopicPartition
from stateflow.routing import RoutingTable
from stateflow.scale import generation as generations
from stateflow.scale.committed_chunks import ABORTED_CHUNKS_MAX
from stateflow.scale.engine import InProcess
from stateflow.scale.ranges import ChangelogRange, changelog_ranges
from stateflow.scale.settings import RangeSettings, ScaleSettings
from stateflow.scale.shuffle import Inbox, PieceFile
from stateflow.scale.start import start
from stateflow.scale.state_move import RangeJob, SliceJob, send_state, write_slice
from stateflow.scale.unread import UnreadMove, move_unread

pytestmark = pytest.mark.slow

STEPS = ("after begin", "after send", "after offsets", "before commit", "after commit")
AFTER = RoutingTable.modulo(5)


class Killed(BaseException):
    """The process is gone: not an error that anything may handle."""


@dataclass
class Fault:
    """Kills the ``number``-th writer of a move (or aborts its transaction) when it comes to ``step``."""

    step: str
    chunk: int
    abort: bool = False
    chunks_seen: int = 0
    times: int = 1

    def reached(self, step: str) -> bool:
        if step == "after begin":
            self.chunks_seen += 1
        if step == self.step and self.chunks_seen >= self.chunk and self.times:
            self.times -= 1
            return True
        return False


class FaultyWriter(ForwardingWriter):
    """A real writer that dies at a chosen step; once dead it does nothing, as a killed process."""

    def __init__(self, writer: Writer, fault: Fault) -> None:
        super().__init__(writer)
        self._fault = fault
        self._dead = False

    def begin(self) -> None:
        super().begin()
        self._pass("after begin")

    def append(self, records: Outgoing) -> None:
        super().append(records)
        self._pass("after send")

    def send_offsets(self, *arguments: Any) -> None:
        super().send_offsets(*arguments)
        self._pass("after offsets")

    def commit(self, timeout_seconds: float = 60.0) -> dict[TopicPartition, Appended]:
        self._pass("before commit")
        appended = super().commit(timeout_seconds)
        self._pass("after commit")
        return appended

    def abort(self) -> None:
        if not self._dead:
            super().abort()

    def close(self) -> None:
        if not self._dead:
            super().close()

    def _pass(self, step: str) -> None:
        if not self._fault.reached(step):
            return
        if self._fault.abort:
            super().abort()
            raise TransactionAborted("the broker aborted the transaction.", action="read again.")
        self._dead = True
        raise Killed


@dataclass
class FaultyCluster:
    """The memory cluster, with a fault in the writers of moves."""

    inner: MemoryCluster
    fault: Fault
    writers: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def writer(self, transactional_id: str | None = None) -> Writer:
        writer = self.inner.writer(transactional_id)
        if transactional_id is None or "-repartition-g1-" not in transactional_id:
            return writer
        self.writers.append(transactional_id)
        return FaultyWriter(writer, self.fault)


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    made = MemoryCluster()
    yield made
    made.close()


def written(cluster: Cluster) -> WrittenApp:
    app = WrittenApp(cluster, "shop", RoutingTable.modulo(3))
    app.create()
    rng = random.Random(3)
    keys = [f"k{number}".encode() for number in range(25)]
    app.write_state(
        "totals", [(rng.choice(keys), None if rng.random() < 0.3 else str(n).encode()) for n in range(200)]
    )
    app.write_unread([(rng.choice(keys), str(number).encode(), 100 + number) for number in range(80)])
    return app


def assert_exactly_once(app: WrittenApp) -> None:
    for store in STORES:
        merged: dict[bytes, bytes] = {}
        for partition, state in app.found_state(store.name, 1).items():
            assert {AFTER.partition_of(key) for key in state} <= {partition}
            merged.update(state)
        assert merged == app.expected[store.name]
    records = [record for rows in app.found_unread(1).values() for record in rows]
    assert sorted(int(record.value) for record in records) == list(range(80)), "each exactly once"


def run(cluster: Cluster) -> None:
    start(
        cluster,
        "shop",
        AFTER.entry(),
        InProcess(cluster),
        ManualClock(),
        settings=ScaleSettings(chunk_records_max=10, ranges=RangeSettings(slots_min=10, slots_max=20)),
    )


@pytest.mark.parametrize("chunk", [1, 2, 3, 9])
@pytest.mark.parametrize("step", STEPS)
def test_killed_anywhere_and_started_again(cluster: MemoryCluster, step: str, chunk: int) -> None:
    app = written(cluster)
    faulty = FaultyCluster(cluster, Fault(step, chunk))
    with pytest.raises(Killed):
        run(faulty)  # type: ignore[arg-type]
    assert faulty.fault.times == 0
    run(cluster)
    assert_exactly_once(app)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_a_chunk_that_the_broker_aborts_is_done_again_at_once(cluster: MemoryCluster, step: str) -> None:
    app = written(cluster)
    faulty = FaultyCluster(cluster, Fault(step, 2, abort=True, times=3))
    run(faulty)  # type: ignore[arg-type]
    assert faulty.fault.times == 0
    assert_exactly_once(app)


@dataclass
class SuspectCluster(FaultyCluster):
    """Each writer commits once. Its EndTxn was sent twice, so it refuses whatever comes next, as ``EndTxnGuard``."""

    def writer(self, transactional_id: str | None = None) -> Writer:
        writer = super().writer(transactional_id)
        if isinstance(writer, FaultyWriter):
            writer._fault = Fault("before commit", 2, abort=True, times=1_000)
        return writer


def test_a_writer_that_may_not_go_on_is_replaced(cluster: MemoryCluster) -> None:
    app = written(cluster)
    suspect = SuspectCluster(cluster, Fault("never", 0))
    run(suspect)  # type: ignore[arg-type]
    assert len(suspect.writers) > len(set(suspect.writers)), "some move more than one chunk"
    assert_exactly_once(app)


def test_a_broker_that_aborts_for_ever_ends_the_task(cluster: MemoryCluster) -> None:
    app = written(cluster)
    faulty = FaultyCluster(cluster, Fault("before commit", 1, abort=True, times=1_000))
    with pytest.raises(TransactionAborted):
        run(faulty)  # type: ignore[arg-type]
    assert faulty.fault.times == 1_000 - ABORTED_CHUNKS_MAX
    run(cluster)
    assert_exactly_once(app)


@pytest.mark.parametrize("seed", range(20))
def test_killed_again_and_again(cluster: MemoryCluster, seed: int) -> None:
    app = written(cluster)
    rng = random.Random(seed)
    for _ in range(6):
        try:
            run(FaultyCluster(cluster, Fault(rng.choice(STEPS), rng.randrange(1, 8))))  # type: ignore[arg-type]
            break
        except Killed:
            pass
    else:
        run(cluster)
    assert_exactly_once(app)


def test_a_second_attempt_fences_the_first(cluster: MemoryCluster) -> None:
    app = written(cluster)
    source = TopicPartition(f"shop-{STEP}-repartition", 0)
    (log,) = cluster.ranges([source]).values()
    cluster.create([TopicSpec("target", 5)])
    job = UnreadMove(
        app="shop",
        generation=1,
        source=source,
        offsets=OffsetRange(0, log.offset_next),
        target_topic="target",
        routing=AFTER.entry(),
        chunk_records_max=10,
    )
    zombie = cluster.writer(job.transactional_id)
    zombie.begin()
    zombie.send("target", b"k1", b"doubled", partition=0)
    result = move_unread(cluster, job)
    with pytest.raises(ProducerFenced):
        zombie.commit()
    assert result.records_written_total == sum(1 for r in app.found_unread(0)[0] if r.key is not None)
    again = move_unread(cluster, job)
    assert (again.records_read_total, again.chunks_total) == (0, 0), "nothing is left to do"


def test_a_second_attempt_at_a_slice_fences_the_first(cluster: MemoryCluster, tmp_path: Path) -> None:
    cluster.create([TopicSpec("source", 1), TopicSpec("target", 5)])
    source = TopicPartition("source", 0)
    writer = cluster.writer()
    writer.begin()
    for number in range(50):
        value = None if number % 10 == 0 else b"%d" % number
        writer.send("source", b"k%d" % (number % 20), value, partition=0, timestamp_ms=number + 1)
    writer.commit()
    (log,) = cluster.ranges([source]).values()
    inbox = sent(cluster, changelog_ranges(source, log, None, 7), tmp_path)
    job = SliceJob(
        app="shop",
        generation=1,
        target_topic="target",
        layout="plain",
        routing=AFTER.entry(),
        number=0,
        slices=1,
        slots=50,
        transaction_bytes_max=200,
    )
    zombie = cluster.writer(job.transactional_id)
    zombie.begin()
    zombie.send("target", b"k1", b"doubled", partition=0)
    done = write_slice(cluster, job, inbox)
    with pytest.raises(ProducerFenced):
        zombie.commit()
    assert done.chunks_total >= 3, "too large for one transaction"
    assert done.records_written_total == 18, "each live key once: k0 and k10 are deleted last"
    again = write_slice(cluster, replace(job, transaction_bytes_max=1 << 20), inbox)
    assert (again.records_written_total, again.chunks_total) == (0, 0), "nothing is left to do"


def sent(cluster: MemoryCluster, parts: Sequence[ChangelogRange], folder: Path) -> Inbox:
    """What jobs over these sub-ranges send to one slice, in order."""
    file, places = PieceFile(folder), []
    for part in parts:
        read = RangeJob(parts=(part,), slices=1, receivers={0: 0}, memory_bytes_max=1 << 20)
        places += [file.add(piece) for _, piece in send_state(cluster, read)]
    file.close()
    assert len(places) == len(parts) > 5
    return Inbox(places)


def test_a_move_begun_without_slices_is_refused(cluster: MemoryCluster) -> None:
    app = written(cluster)
    with pytest.raises(Killed):
        run(FaultyCluster(cluster, Fault("after begin", 1)))  # type: ignore[arg-type]
    source = TopicPartition("shop-totals-changelog", 0)
    at = cluster.committed("shop-repartition-g1", [source])[source]
    cluster.commit("shop-repartition-g1", {source: Committed(5, at.metadata.partition("/")[0])})
    with pytest.raises(GenerationUnfinished, match="earlier version"):
        run(cluster)
    generations.abort(cluster, "shop")
    run(cluster)
    assert app.found_state("totals", 2)
