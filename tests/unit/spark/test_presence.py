"""Hosted workers stop when their driver has left its group, and outlive a broker that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from queue import SimpleQueue

import pytest

from stateflow.catalog.names import control_topic
from stateflow.errors import BrokerRefused, BrokerUnreachable, MembershipLost, StateflowError
from stateflow.log.base import GroupListener, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.log.memory.consumer import MemoryGroupConsumer
from stateflow.record import RecordBatch
from stateflow.spark import presence as presences
from stateflow.spark.presence import presence, stopped_with_driver
from tests.waiting import wait_until


class FailingMember(MemoryGroupConsumer):
    """A member whose polls raise what is put into ``errors``."""

    errors: SimpleQueue[StateflowError]

    def poll(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        if not self.errors.empty():
            raise self.errors.get()
        return super().poll(max_records, timeout_seconds)


class Faltering(MemoryCluster):
    """Does not answer, a few times."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = 0
        self.of_polls: SimpleQueue[StateflowError] = SimpleQueue()

    def group_consumer(
        self,
        group: str,
        topics: Sequence[str],
        listener: GroupListener,
        *,
        member: str | None = None,
        independent: bool = False,
    ) -> FailingMember:
        made = FailingMember(self._broker, group, topics, listener, member, independent=independent)
        made.errors = self.of_polls
        return made

    def group_members(self, group: str) -> list[str]:
        if self.silent:
            self.silent -= 1
            raise BrokerUnreachable("no answer.", action="wait.")
        return super().group_members(group)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterable[Faltering]:
    monkeypatch.setattr(presences, "_WATCH_SECONDS", 0.01)
    monkeypatch.setattr(presences, "_POLL_SECONDS", 0.01)
    made = Faltering()
    made.create([TopicSpec(control_topic("shop"), 1)])
    yield made
    made.close()


def test_a_worker_runs_as_long_as_its_driver_is_there(cluster: Faltering) -> None:
    stopped = threading.Event()
    with presence(cluster, "shop") as driver:
        with stopped_with_driver(cluster, "shop", driver.member_id, stopped.set):
            cluster.silent = 5
            assert not stopped.wait(0.3)
            driver.leave()
            assert stopped.wait(10)
        driver.leave()  # once is enough
    assert cluster.group_members("shop-spark") == []


def test_another_driver_is_not_its_own(cluster: Faltering) -> None:
    stopped = threading.Event()
    with presence(cluster, "shop"), stopped_with_driver(cluster, "shop", "a dead driver", stopped.set):
        assert stopped.wait(10)


def test_a_driver_outlives_an_outage_and_is_seen_again(cluster: Faltering) -> None:
    with presence(cluster, "shop") as driver:
        before = driver.member_id
        cluster.of_polls.put(BrokerUnreachable("no answer.", action="wait."))
        cluster.of_polls.put(MembershipLost("timed out.", action="wait."))
        wait_until(cluster.of_polls.empty, "polls after the first failed one", driver.check)
        cluster.end_sessions("shop-spark")
        wait_until(lambda: driver.member_id != before, "the driver to join again", driver.check)
        assert cluster.group_members("shop-spark") == [driver.member_id]


def test_what_does_not_pass_is_raised_where_the_driver_waits(cluster: Faltering) -> None:
    with presence(cluster, "shop") as driver:
        driver.check()
        cluster.of_polls.put(BrokerRefused("not allowed.", action="allow it."))
        with pytest.raises(BrokerRefused, match="not allowed"):
            wait_until(lambda: False, "the driver to tell", driver.check)
    assert cluster.group_members("shop-spark") == []
