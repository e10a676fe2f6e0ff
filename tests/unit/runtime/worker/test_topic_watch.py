"""What a running worker makes of topics that were deleted and created again."""

from __future__ import annotations

import logging

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import BrokerUnreachable, PartitionsAdded, TopicRecreated
from stateflow.lab.faults.simulation.parked import ParkedExecutor
from stateflow.log.base import TopicInfo, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.runtime.worker.prepare import prepare
from stateflow.runtime.worker.topic_watch import LOOK_FAILED_SECONDS, LOOK_SECONDS, TopicWatch
from tests.sim.counting import OUTPUT, SOURCE, topology


class Asked(MemoryCluster):
    """Counts questions; every one fails while ``is_away``."""

    questions = 0
    is_away = False

    def describe(self, topics: object) -> dict[str, TopicInfo]:
        self.questions += 1
        if self.is_away:
            raise BrokerUnreachable("no broker answers", action="start one")
        return super().describe(topics)  # type: ignore[arg-type]


class Watching:
    """The counting application, whose topics are looked at."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = Asked(clock=self.clock)
        self.cluster.create([TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 2)])
        wiring = prepare(self.cluster, topology(), "exactly-once", 2, self.clock)
        self.own = sorted(wiring.catalog.active.topic_ids)
        self.requests = ParkedExecutor()
        self.watch = TopicWatch(self.cluster, wiring.catalog, self.clock, self.requests)
        self.cluster.questions = 0

    def look(self, after_seconds: float = LOOK_SECONDS) -> None:
        self.clock.advance(seconds=after_seconds)
        self.watch.turn()
        self.requests.drive(1)
        self.watch.turn()

    def recreate(self, topic: str) -> None:
        partitions = self.cluster.describe([topic])[topic].partitions
        self.cluster.delete([topic])
        self.cluster.create([TopicSpec(topic, partitions)])


def test_a_source_that_is_another_topic_now_ends_the_worker_and_says_what_to_do() -> None:
    watching = Watching()
    watching.look()
    watching.recreate(SOURCE)
    with pytest.raises(TopicRecreated, match=f"the source {SOURCE} was deleted and created again") as raised:
        watching.look()
    assert "--to-earliest" in (raised.value.action or "")
    assert not raised.value.is_retriable


def test_so_does_every_topic_of_the_application_itself() -> None:
    for topic in Watching().own:
        watching = Watching()
        watching.recreate(topic)
        with pytest.raises(TopicRecreated, match=f"{topic} was deleted and created again"):
            watching.look()


def test_partitions_that_were_added_are_told_of_to_those_who_ask() -> None:
    cluster = MemoryCluster()
    cluster.create([TopicSpec(SOURCE, 2), TopicSpec(OUTPUT, 2)])
    wiring = prepare(cluster, topology(), "exactly-once", 2, ManualClock())
    TopicWatch(cluster, wiring.catalog, ManualClock(), check_counts=wiring.check_counts).look()
    wiring.check_counts({SOURCE: 2, OUTPUT: 3})
    with pytest.raises(PartitionsAdded, match=f"{SOURCE}: partitions were added to the 2"):
        wiring.check_counts({SOURCE: 3, OUTPUT: 2})


def test_a_topic_that_is_not_there_is_met_by_those_who_read_it() -> None:
    watching = Watching()
    watching.cluster.delete([SOURCE])
    watching.look()
    assert watching.cluster.questions == 1, "it was looked at, and nothing raised"


def test_the_poll_thread_does_not_wait_for_the_answer_and_asks_no_second_time() -> None:
    watching = Watching()
    watching.clock.advance(seconds=LOOK_SECONDS)
    for _ in range(10):
        watching.watch.turn()
        watching.clock.advance(seconds=LOOK_SECONDS)
    assert watching.cluster.questions == 0  # begun, and not gone on with
    watching.requests.drive(1)
    watching.watch.turn()
    assert watching.cluster.questions == 1
    watching.look(LOOK_SECONDS / 2)
    assert watching.cluster.questions == 1
    watching.look(LOOK_SECONDS / 2)
    assert watching.cluster.questions == 2


def test_brokers_that_are_away_are_asked_again_later(caplog: pytest.LogCaptureFixture) -> None:
    watching = Watching()
    watching.recreate(SOURCE)
    watching.cluster.questions, watching.cluster.is_away = 0, True
    with caplog.at_level(logging.WARNING):
        watching.look()
    assert "Cannot see whether topics were created again" in caplog.text
    watching.cluster.is_away = False
    watching.look(LOOK_SECONDS)
    assert watching.cluster.questions == 1
    with pytest.raises(TopicRecreated):
        watching.look(LOOK_FAILED_SECONDS)
