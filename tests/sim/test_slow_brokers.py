"""A worker goes on while brokers do not answer what it asks beside its records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest

from stateflow.catalog.names import members_topic
from stateflow.errors import TransactionAborted
from stateflow.log.base import TopicInfo
from stateflow.record import OffsetRange, TopicPartition
from stateflow.runtime.worker.figures import WorkerNews
from stateflow.runtime.worker.status_reports import StatusReports
from stateflow.runtime.worker.worker import Worker
from tests.sim.asking_world import AskingWorld
from tests.sim.counting import APP, OUTPUT
from tests.sim.test_worker_crashes import WORDS, assert_exactly_once

TASKS = 5
ANSWER_SECONDS_MAX = 30


class SlowWorld(AskingWorld):
    """In the place of its cluster: some of what is asked is answered only when a test says so."""

    def __init__(self, **settings: float) -> None:
        super().__init__(self._before_commit)
        self.fails = False
        """Whether commits fail."""
        self.set(restore_threads=1, commit_interval_seconds=0.05, poll_timeout_seconds=0.001, **settings)
        self.slow = ""
        """What is slow."""
        self.asked: list[str] = []
        self.trimmed = 0
        self.answers = threading.Event()
        self._poll_thread = threading.current_thread()
        news = WorkerNews(StatusReports(self, APP, "w0", self.clock))
        self.under_test: Worker = self.begin(news=news)
        self.turn_until(lambda: len(self.under_test.tasks) == TASKS)

    def ranges(
        self, partitions: Iterable[TopicPartition], *, stable: bool = True
    ) -> dict[TopicPartition, OffsetRange]:
        self._ask("ranges")
        return self.cluster.ranges(partitions, stable=stable)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        wanted = list(topics)
        if members_topic(APP) in wanted:
            self._ask("report")
        return self.cluster.describe(wanted)

    def trim(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._ask("trim")
        self.cluster.trim(offsets)
        self.trimmed += 1

    def _ask(self, what: str) -> None:
        if what != self.slow:
            return
        self.asked.append(what)
        assert threading.current_thread() is not self._poll_thread, "this holds up all tasks"
        assert self.answers.wait(ANSWER_SECONDS_MAX), "a test lets it answer"

    def _before_commit(self) -> None:
        if self.fails:
            raise TransactionAborted("it was aborted.", action="open it again.")

    def turn_until(self, holds: Callable[[], bool], turn_ms: int = 1) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not holds():
            assert time.monotonic() < deadline
            self.under_test.step()
            self.clock.advance(ms=turn_ms)

    def processed(self) -> int:
        """Records of the second stage: those before it are committed then."""
        return sum(
            task.records_total for name, task in self.under_test.tasks.items() if name.startswith("number-")
        )

    def stop(self) -> None:
        self.under_test.stop()
        self.under_test.run()

    def inputs_idle(self) -> list[bool]:
        """Of each input of the first stage whether its task has committed that it is idle."""
        return [
            bool(task.committed.event_time.ports[0].idle)
            for name, task in self.under_test.tasks.items()
            if name.startswith("rekey-")
        ]


MakeWorld = Callable[..., SlowWorld]


@pytest.fixture
def begun() -> Iterator[MakeWorld]:
    """Makes worlds with these settings, no thread of which is left behind."""
    made: list[SlowWorld] = []

    def begin(**settings: float) -> SlowWorld:
        made.append(SlowWorld(**settings))
        return made[-1]

    yield begin
    for world in made:
        world.answers.set()


def asked_to_trim(begun: MakeWorld, words: list[bytes]) -> SlowWorld:
    """A world that has processed these words, and whose brokers do not answer the purge of them."""
    world = begun(purge_interval_seconds=0)
    world.slow = "trim"
    world.feed(words)
    world.turn_until(lambda: bool(world.asked))
    return world


def test_records_are_processed_while_nobody_says_where_a_silent_input_ends(begun: MakeWorld) -> None:
    world = begun(idle_seconds=5)
    world.slow = "ranges"
    world.clock.advance(ms=5_000)
    world.turn_until(lambda: bool(world.asked))
    world.feed(WORDS)
    world.turn_until(lambda: world.processed() == len(WORDS))
    world.clock.advance(ms=5_000)
    for _ in range(20):
        world.under_test.step()
    assert world.asked == ["ranges"], "one at a time"
    assert not any(world.inputs_idle()), "what was asked before they spoke says nothing about now"
    world.answers.set()
    world.turn_until(lambda: all(world.inputs_idle()))
    assert len(world.asked) > 1
    world.stop()
    assert_exactly_once(world)


def test_a_worker_ends_without_the_answer(begun: MakeWorld) -> None:
    world = begun(idle_seconds=5)
    world.feed(WORDS)
    world.turn_until(lambda: world.processed() == len(WORDS))
    world.slow = "ranges"
    world.clock.advance(ms=5_000)
    world.turn_until(lambda: bool(world.asked))
    world.stop()
    assert not world.answers.is_set()
    assert_exactly_once(world)


def test_records_are_processed_while_a_report_is_not_taken(begun: MakeWorld) -> None:
    world = begun()
    world.slow = "report"
    world.fails = True
    world.feed(WORDS[:10])
    world.turn_until(lambda: bool(world.asked), turn_ms=100)
    world.fails = False
    world.feed(WORDS[10:])
    world.turn_until(lambda: len(world.read(OUTPUT)) == len(WORDS), turn_ms=100)
    assert world.asked == ["report"], "one at a time"
    assert members_topic(APP) not in world.cluster.list_topics()
    world.answers.set()
    world.turn_until(lambda: members_topic(APP) in world.cluster.list_topics())
    world.stop()
    assert_exactly_once(world)


def test_records_are_processed_while_consumed_ones_are_dropped(begun: MakeWorld) -> None:
    world = asked_to_trim(begun, WORDS[:10])
    world.feed(WORDS[10:])
    world.turn_until(lambda: world.processed() == len(WORDS))
    assert world.asked == ["trim"], "one at a time"
    world.answers.set()
    world.turn_until(lambda: world.trimmed > 0)
    world.stop()
    assert_exactly_once(world)


def test_no_trim_outlives_its_worker(begun: MakeWorld) -> None:
    """A topic of the same name may be another one by then."""
    world = asked_to_trim(begun, WORDS)
    world.turn_until(lambda: world.processed() == len(WORDS))
    answer = threading.Timer(0.2, world.answers.set)
    answer.start()
    world.stop()
    assert world.trimmed == len(world.asked) > 0
    assert_exactly_once(world)
