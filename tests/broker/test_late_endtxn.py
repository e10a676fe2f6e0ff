"""The real worker on a real broker behind a proxy: late and repeated EndTxn requests do no harm.

Words go through a re-key stage to a count per word. Each word's outputs must be 1, 2, 3, …: a gap is a loss, a
repetition something seen twice.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import stateflow as sf
from stateflow.clock import SystemClock
from stateflow.errors import TransactionAborted
from stateflow.lab.network.faults import END_TXN, Action, Caught, Fault
from stateflow.lab.network.proxy import KafkaProxy
from stateflow.log.base import TopicSpec
from stateflow.log.kafka.cluster import KafkaCluster
from stateflow.record import TopicPartition
from stateflow.runtime.progress.lag import is_drained
from stateflow.runtime.settings import WorkerSettings
from stateflow.runtime.task.wiring import TaskWiring
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.worker import Worker
from stateflow.store.memory import MemoryTaskStores
from stateflow.testing.broker import TestBroker
from tests.broker.watched_cluster import WatchedCluster

pytestmark = pytest.mark.broker

WORDS = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question", "to", "be", "or"]
STEPS_MAX = 2_000
ROUNDS_MAX = 12
PARTITIONS = 2
TIMEOUT_SECONDS = 30.0
OBEYED, INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS = 0, 47, 51


class Number(sf.Operator[str, str, int]):
    """Numbers the records of each word."""

    seen: sf.Value[int] = sf.state(default=0)

    def on_record(self, value: str, ctx: sf.Context[int]) -> None:
        self.seen.set(self.seen.get() + 1)
        ctx.emit(self.seen.get())


class WordCount:
    """The application, and the disks of the machine that its worker runs on."""

    def __init__(self, cluster: Any, direct: KafkaCluster, *, paranoid: bool = False) -> None:
        tag = uuid.uuid4().hex[:8]
        self.cluster = cluster
        self.direct = direct
        self.paranoid = paranoid
        self.app = sf.App(f"late-{tag}", guarantee="exactly-once")
        self.words = self.app.topic(f"late-{tag}-words", value=sf.String)
        self.counts = self.app.topic(f"late-{tag}-counts", key=sf.String, value=sf.Json)
        keyed = self.app.stream(self.words).key_by(str, name="by-word")
        self.app.operator("count", source=keyed, sink=self.counts)(Number)
        direct.create([TopicSpec(self.words.name, PARTITIONS), TopicSpec(self.counts.name, PARTITIONS)])
        self.disks: dict[str, MemoryTaskStores] = {}
        self.fed: Counter[str] = Counter()
        self.workers: list[Worker] = []
        self.wiring = prepare(direct, self.app.topology(), "exactly-once", PARTITIONS, SystemClock())

    def feed(self, words: list[str]) -> None:
        writer = self.direct.writer()
        for word in words:
            writer.send(self.words.name, None, word.encode(), partition=self.fed.total() % PARTITIONS)
            self.fed[word] += 1
        writer.commit()
        writer.close()

    def worker(self) -> Worker:
        settings = WorkerSettings(
            state_dir=Path("in-memory"),
            commit_interval_seconds=0.05,
            poll_timeout_seconds=0.02,
            member="w0",
            commit_mode="paranoid" if self.paranoid else "standard",
        )
        self.workers.append(Worker(self.cluster, self.wiring, self._stores, settings, SystemClock()))
        return self.workers[-1]

    def close(self) -> None:
        """Let go of the clients of workers that died: those of a dead process would be gone, too."""
        for worker in self.workers:
            worker.close()

    def _stores(self, wiring: TaskWiring, _cancelled: Callable[[], bool]) -> MemoryTaskStores:
        stores = [store.name for store in wiring.stage.stores]
        return self.disks.setdefault(wiring.id, MemoryTaskStores(stores, SystemClock()))

    def run_to_the_end(self, worker: Worker, each_step: Callable[[], None] = lambda: None) -> None:
        for _ in range(STEPS_MAX):
            worker.step()
            each_step()
            if not worker.starting and worker.tasks and is_drained(self.direct, self.wiring.catalog):
                return
        raise AssertionError("the worker does not come to an end")

    def outputs(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        partitions = [TopicPartition(self.counts.name, p) for p in range(PARTITIONS)]
        ends = self.direct.ranges(partitions)
        reader = self.direct.reader()
        reader.assign(dict.fromkeys(partitions, 0))
        while any(reader.position(p) < ends[p].offset_next for p in partitions):
            for batch in reader.read(1_000, 0.2):
                for record in batch.records():
                    found[self.counts.key.decode(record.key)].append(self.counts.value.decode(record.value))
        reader.close()
        return found

    def assert_exactly_once(self) -> None:
        assert self.outputs() == {word: list(range(1, n + 1)) for word, n in self.fed.items()}
        assert self.state_total() == self.fed.total()

    def state_total(self) -> int:
        """Sum of all counts on the disks."""
        entry = next(iter(self.wiring.catalog.stores.values()))
        codec = sf.codec.from_description(entry.value_codec)
        return sum(
            codec.decode(value)
            for task, disk in self.disks.items()
            if task.startswith(entry.stage)
            for _, value in disk.reader(entry.name).scan()
        )


class Died(BaseException):
    """The process is gone."""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "this never came true"


def deliver(caught: Caught) -> int:
    """Let the late request arrive, at a moment when the coordinator is not busy with markers."""
    codes: list[int] = []

    def is_answered() -> bool:
        codes.append(caught.wait().deliver())
        return codes[-1] != CONCURRENT_TRANSACTIONS

    until(is_answered)
    return codes[-1]


@pytest.fixture
def proxy(broker: TestBroker) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.bootstrap) as running:
        yield running


@pytest.fixture
def direct(broker: TestBroker) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(broker.bootstrap)
    yield cluster
    cluster.close()


@pytest.fixture
def behind(proxy: KafkaProxy) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(proxy.bootstrap)
    yield cluster
    cluster.close()


@pytest.fixture
def word_count(behind: KafkaCluster, direct: KafkaCluster) -> Iterator[Callable[..., WordCount]]:
    """Makes the application; what its workers hold is let go of at the end."""
    with ExitStack() as made:

        def make(*, paranoid: bool = False) -> WordCount:
            return made.enter_context(closing(WordCount(behind, direct, paranoid=paranoid)))

        yield make


def test_a_writer_sends_nothing_after_a_retried_end(
    proxy: KafkaProxy, direct: KafkaCluster, behind: KafkaCluster
) -> None:
    topic = f"late-{uuid.uuid4().hex[:8]}"
    direct.create([TopicSpec(topic, 1)])
    place = TopicPartition(topic, 0)
    writer = behind.writer(topic)
    writer.begin()
    writer.send(topic, b"k", b"1", partition=0)
    caught = proxy.arm(Fault(Action.HOLD_AND_CUT, transactional_id=topic))
    writer.commit()
    until(lambda: direct.ranges([place])[place].slots == 2)  # the record and its marker

    writer.begin()
    writer.send(topic, b"k", b"2", partition=0)
    with pytest.raises(TransactionAborted, match="before anything of it was sent"):
        writer.flush()
    deliver(caught)
    assert direct.ranges([place], stable=False)[place].slots == 2, "nothing was sent"
    writer.close()

    again = behind.writer(topic)
    again.begin()
    again.send(topic, b"k", b"2", partition=0)
    assert deliver(caught) == INVALID_PRODUCER_EPOCH
    again.commit()
    again.close()
    until(lambda: direct.ranges([place])[place].slots == 4)


def test_ordinary_commits_go_through_one_after_another(proxy: KafkaProxy, behind: KafkaCluster) -> None:
    topic = f"late-{uuid.uuid4().hex[:8]}"
    behind.create([TopicSpec(topic, 1)])
    writer = behind.writer(topic)
    for number in range(10):
        writer.begin()
        writer.send_many(topic, [b"a", b"b"], [b"1", b"2"], partitions=0)
        writer.flush()
        writer.send(topic, b"end", b"%d" % number, partition=0)
        appended = writer.commit()
        assert appended[TopicPartition(topic, 0)].offset == number * 4 + 2
    writer.close()
    assert proxy.requests_total(END_TXN) == 10


@pytest.mark.parametrize("action", [Action.HOLD_AND_CUT, Action.LOSE_ANSWER])
def test_late_ends_of_a_worker_are_harmless(
    action: Action, proxy: KafkaProxy, word_count: Callable[..., WordCount]
) -> None:
    """Commit after commit is spoilt, whichever task's it is; each late request arrives between two steps."""
    count = word_count()
    armed: list[Caught] = [proxy.arm(Fault(action))]
    delivered: list[int] = []

    def deliver_between() -> None:
        if armed[-1].happened:
            delivered.append(deliver(armed[-1]))
            if len(delivered) < 6:
                armed.append(proxy.arm(Fault(action)))

    worker = count.worker()
    for _ in range(ROUNDS_MAX):  # how many commits a round takes depends on the machine
        count.feed(WORDS)
        count.run_to_the_end(worker, deliver_between)
        if len(delivered) >= 3:
            break
    worker.stop()
    worker.run()
    assert len(delivered) >= 3, "too few requests were late"
    count.assert_exactly_once()


@pytest.mark.parametrize("stage", [0, 1], ids=["re-key", "count"])
def test_a_late_end_never_meets_records_of_the_next_transaction(
    stage: int, proxy: KafkaProxy, word_count: Callable[..., WordCount], behind: KafkaCluster
) -> None:
    """The worst moment: outputs and changes are sent, their commit record and offsets are not; and then it dies."""
    count = word_count()
    chosen = next(t for t in count.wiring.tasks() if t.stage is count.wiring.topology.stages[stage])
    caught = proxy.arm(Fault(Action.HOLD_AND_CUT, transactional_id=chosen.transactional_id))
    arrived: list[int] = []

    def sealing(writer: Any) -> None:
        if caught.happened and not arrived:
            try:
                writer.flush()
            finally:
                arrived.append(deliver(caught))
            raise Died

    count.cluster = WatchedCluster(behind, chosen.stage.name, sealing=sealing)
    worker = count.worker()
    try:
        for _ in range(3):
            count.feed(WORDS)
            count.run_to_the_end(worker)
    except Died:
        count.cluster = behind
        worker = count.worker()
        count.run_to_the_end(worker)
    worker.stop()
    worker.run()
    assert arrived, "no request was late"
    count.assert_exactly_once()


@pytest.mark.parametrize("dies", [False, True], ids=["goes-on", "dies"])
@pytest.mark.parametrize("at_flush", [3, 4], ids=["before-commit-records", "before-offsets"])
def test_a_commit_torn_by_a_repeated_end_leaves_the_state_right(
    at_flush: int,
    dies: bool,
    proxy: KafkaProxy,
    word_count: Callable[..., WordCount],
    behind: KafkaCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first defence cannot see who else repeats a request: the commit records keep the state right."""
    count = word_count()
    stage = next(iter(count.wiring.catalog.stores.values())).stage
    chosen = next(wiring for wiring in count.wiring.tasks() if wiring.stage.name == stage)
    repeated = proxy.arm(Fault(Action.DUPLICATE, transactional_id=chosen.transactional_id))
    flushes: list[int] = []

    def acknowledged(_: Any) -> None:
        if not repeated.happened:
            return
        flushes.append(1)
        if len(flushes) == at_flush - 2:  # of the commit after the one whose end is repeated
            assert deliver(repeated) == OBEYED, "the commit is torn here"
            if dies:
                raise Died

    count.cluster = WatchedCluster(behind, stage, acknowledged=acknowledged)
    worker = count.worker()
    with caplog.at_level(logging.WARNING):
        try:
            for _ in range(4):
                count.feed(WORDS)
                count.run_to_the_end(worker)
        except Died:
            count.cluster = behind
            worker = count.worker()
            count.run_to_the_end(worker)
    worker.stop()
    worker.run()
    assert len(flushes) >= at_flush - 2, "the second commit never came"
    assert count.state_total() == count.fed.total()
    for word, numbers in count.outputs().items():
        assert sorted(set(numbers)) == list(range(1, count.fed[word] + 1)), word


@pytest.mark.parametrize("stage", [0, 1], ids=["re-key", "count"])
def test_paranoid_workers_do_not_mind_repeated_ends(
    stage: int, proxy: KafkaProxy, word_count: Callable[..., WordCount], behind: KafkaCluster
) -> None:
    """Outputs too: the repeated request is refused, as its producer epoch is over."""
    count = word_count(paranoid=True)
    chosen = next(t for t in count.wiring.tasks() if t.stage is count.wiring.topology.stages[stage])
    repeated = proxy.arm(Fault(Action.DUPLICATE, transactional_id=chosen.transactional_id))
    answers: list[int] = []

    def sealing(writer: Any) -> None:
        if repeated.happened and len(answers) < 4:
            writer.flush()
            answers.append(deliver(repeated))

    count.cluster = WatchedCluster(behind, chosen.stage.name, sealing=sealing)
    worker = count.worker()
    for _ in range(3):
        count.feed(WORDS)
        count.run_to_the_end(worker)
    worker.stop()
    worker.run()
    assert answers, "no request was repeated"
    count.assert_exactly_once()
