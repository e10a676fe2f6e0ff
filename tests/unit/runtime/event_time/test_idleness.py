"""Which source partitions a worker calls idle: those that are silent, and read to their ends as they are now."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Executor
from threading import Event

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import BrokerRefused, BrokerUnreachable, StateflowError, TopicMissing
from stateflow.lab.faults.simulation.parked import ParkedExecutor
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.event_time.idleness import IdleSources
from stateflow.runtime.opening.inline import InlineExecutor
from tests.waiting import wait_until

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
IDLE_SECONDS = 5.0


class CountingCluster(MemoryCluster):
    """Counts who asks for the ends of logs, and may fail to say."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self.asked: list[list[TopicPartition]] = []
        self.failure: StateflowError | None = None
        self.answers = Event()
        self.answers.set()

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        wanted = sorted(partitions)
        self.asked.append(wanted)
        assert self.answers.wait(30), "a test lets it answer"
        if self.failure is not None:
            raise self.failure
        return super().ranges(wanted, stable=stable)


class Reading:
    """Two partitions, read up to ``positions``."""

    def __init__(self, requests: Executor | None) -> None:
        self.clock = ManualClock()
        self.cluster = CountingCluster(self.clock)
        self.cluster.create([TopicSpec("in", 2)])
        self.idle_sources = IdleSources(self.cluster, IDLE_SECONDS, self.clock, requests)
        self.idle_sources.begin([A, B])
        self.positions = {A: 0, B: 0}

    def produce(self, source: TopicPartition, count: int = 1) -> None:
        writer = self.cluster.writer()
        writer.send_many(
            source.topic, [b"k"] * count, [b"v"] * count, partitions=source.partition, timestamps_ms=1
        )
        writer.commit()
        writer.close()

    def fallen(
        self, *, after_seconds: float = 0.0, busy: Collection[TopicPartition] = ()
    ) -> list[TopicPartition]:
        self.clock.advance(seconds=after_seconds)
        return sorted(self.idle_sources.fallen_idle(self.positions.__getitem__, busy))

    def read_on(self, source: TopicPartition) -> None:
        """A record comes, and is processed."""
        self.produce(source)
        self.positions[source] += 1
        self.idle_sources.heard([source])


@pytest.fixture
def reading() -> Reading:
    return Reading(InlineExecutor())


class Asking(Reading):
    """Its questions are answered when a test says so, and heard of with the next turn."""

    def __init__(self) -> None:
        self.requests = ParkedExecutor()
        super().__init__(self.requests)

    def answer(self) -> None:
        self.requests.drive(1)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_silent_partitions_at_their_ends_fall_idle_once(reading: Reading) -> None:
    assert reading.fallen(after_seconds=4.9) == []
    assert reading.cluster.asked == [], "who is not silent is not asked about"
    assert reading.fallen(after_seconds=0.1) == [A, B]
    assert reading.cluster.asked == [[A, B]], "one request for both"
    assert reading.fallen(after_seconds=60) == []
    assert len(reading.cluster.asked) == 1


def test_one_whose_task_is_busy_falls_idle_when_it_is_free(reading: Reading) -> None:
    assert reading.fallen(after_seconds=5, busy=[A]) == [B]
    assert reading.fallen() == [A], "at once"


def test_a_partition_whose_records_wait_is_not_idle_however_silent(reading: Reading) -> None:
    reading.produce(B, 10)
    assert reading.fallen(after_seconds=60) == [A]
    reading.positions[B] = 9
    assert reading.fallen(after_seconds=60) == []
    reading.positions[B] = 10
    assert reading.fallen(after_seconds=60) == [B]


def test_the_end_is_asked_for_again_at_intervals(reading: Reading) -> None:
    reading.produce(B)
    reading.fallen(after_seconds=5)
    for _ in range(9):
        reading.fallen(after_seconds=0.1)
    assert len(reading.cluster.asked) == 1
    reading.fallen(after_seconds=0.1)
    assert reading.cluster.asked == [[A, B], [B]]


def test_who_speaks_is_awake_and_its_silence_begins_after_the_batch(reading: Reading) -> None:
    assert reading.fallen(after_seconds=5) == [A, B]
    reading.clock.advance(seconds=30)  # a slow batch of A
    reading.idle_sources.heard([A])
    assert reading.fallen(after_seconds=4.9) == []
    assert reading.fallen(after_seconds=0.1) == [A]


def test_records_of_an_open_transaction_keep_their_partition_awake(reading: Reading) -> None:
    writer = reading.cluster.writer("id")
    writer.begin()
    writer.send("in", b"k", b"v", partition=1, timestamp_ms=1)
    writer.flush()
    assert reading.fallen(after_seconds=10) == [A]
    writer.abort()
    reading.positions[B] = reading.cluster.ranges([B])[B].offset_next
    assert reading.fallen(after_seconds=1) == [B]


@pytest.mark.parametrize("failure", [BrokerUnreachable, BrokerRefused, TopicMissing])
def test_without_an_answer_all_stay_awake(reading: Reading, failure: type[StateflowError]) -> None:
    reading.cluster.failure = failure("no", action="see to it")
    assert reading.fallen(after_seconds=5) == []
    assert reading.fallen() == []
    assert len(reading.cluster.asked) == 1, "it is not asked again at once"
    reading.cluster.failure = None
    assert reading.fallen(after_seconds=1) == [], "each question may take long to stay unanswered"
    assert reading.fallen(after_seconds=30) == [A, B]


def test_a_task_that_starts_again_begins_awake(reading: Reading) -> None:
    assert reading.fallen(after_seconds=5) == [A, B]
    reading.idle_sources.end([A, B, TopicPartition("unknown", 0)])
    reading.idle_sources.begin([A])
    assert reading.fallen(after_seconds=4.9) == []
    assert reading.fallen(after_seconds=0.1) == [A]


# --- while the answer is on its way -----------------------------------------------------------------------------------


def test_nobody_waits_for_the_answer_and_nothing_else_is_asked_meanwhile(asking: Asking) -> None:
    asking.idle_sources.end([B])
    assert asking.fallen(after_seconds=5) == []
    asking.idle_sources.begin([B])
    for _ in range(100):
        assert asking.fallen(after_seconds=1) == []
    assert asking.requests.open_total == 1, "however many are silent by now"
    asking.answer()
    assert asking.fallen() == [A]
    asking.answer()
    assert asking.fallen() == [B]
    assert asking.cluster.asked == [[A], [B]]


def test_a_record_that_comes_between_question_and_answer_keeps_its_partition_awake(asking: Asking) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.read_on(A)
    asking.answer()  # the end is behind the record, and so is the position
    assert asking.fallen() == [B]
    assert asking.fallen(after_seconds=4.9) == []
    assert asking.fallen(after_seconds=0.1) == [], "asked anew, from when it had fallen silent again"
    asking.answer()
    assert asking.fallen() == [A]


def test_a_record_that_is_behind_the_answer_and_read_before_it_is_heard_keeps_its_partition_awake(
    asking: Asking,
) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.answer()
    asking.read_on(A)
    assert asking.fallen() == [B]
    assert asking.fallen(after_seconds=4.9) == []
    assert asking.fallen(after_seconds=0.1) == []
    asking.answer()
    assert asking.fallen() == [A]


def test_a_record_that_waits_when_the_answer_comes_keeps_its_partition_awake(asking: Asking) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.answer()
    asking.produce(A)
    asking.idle_sources.heard([A])  # it was read, and a slow one is before it: the position has not moved
    assert asking.fallen() == [B]


def test_a_record_that_the_answer_knows_and_nobody_has_read_keeps_its_partition_awake(asking: Asking) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.produce(A)
    asking.answer()
    assert asking.fallen() == [B]


def test_a_partition_that_was_read_on_without_a_record_is_asked_for_again(asking: Asking) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.answer()
    # It stands behind the marker of a transaction that was aborted; more may have come with it.
    asking.positions[A] += 1
    asking.produce(A)
    assert asking.fallen() == [B]
    assert asking.fallen(after_seconds=1) == []
    asking.answer()
    assert asking.fallen() == [A]


def test_a_task_that_starts_again_meanwhile_begins_awake(asking: Asking) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.idle_sources.end([A, B])
    asking.idle_sources.begin([A])
    asking.answer()
    assert asking.fallen() == []
    assert asking.fallen(after_seconds=5) == []
    asking.answer()
    assert asking.fallen() == [A]


def test_one_that_is_busy_when_the_answer_comes_falls_idle_by_it_when_it_is_free(asking: Asking) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.answer()
    assert asking.fallen(busy=[A]) == [B]
    assert asking.fallen(after_seconds=60, busy=[A]) == []
    assert asking.fallen() == [A]
    assert len(asking.cluster.asked) == 1, "it may be busy whenever an answer comes"


def test_one_that_speaks_while_it_is_busy_stays_awake(asking: Asking) -> None:
    assert asking.fallen(after_seconds=5) == []
    asking.answer()
    assert asking.fallen(busy=[A]) == [B]
    asking.produce(A)
    asking.idle_sources.heard([A])
    assert asking.fallen() == []


def test_that_no_broker_answers_is_said_when_it_is_known(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    asking.cluster.failure = BrokerUnreachable("no answer", action="start it")
    asking.fallen(after_seconds=5)
    asking.answer()
    assert not caplog.records
    assert asking.fallen() == []
    assert "Cannot see whether silent inputs are at their ends" in caplog.text
    asking.cluster.failure = None
    assert asking.fallen(after_seconds=29.9) == []
    assert asking.requests.open_total == 0
    assert asking.fallen(after_seconds=0.1) == []
    asking.answer()
    assert asking.fallen() == [A, B]


def test_a_question_without_an_answer_holds_up_nobody_who_closes() -> None:
    reading = Reading(None)
    reading.cluster.answers.clear()
    assert reading.fallen(after_seconds=5) == []
    wait_until(lambda: len(reading.cluster.asked) > 0, "the question")
    reading.idle_sources.close()
    assert not reading.idle_sources._request.is_over
    reading.cluster.answers.set()
