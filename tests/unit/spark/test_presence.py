"""Hosted workers stop when their driver has left its group, and outlive a broker that does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import pytest

from stateflow.catalog.names import control_topic
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.spark import presence as presences
from stateflow.spark.presence import presence, stopped_with_driver


class Faltering(MemoryCluster):
    """Does not answer, a few times."""

    def __init__(self) -> None:
        super().__init__()
        self.silent = 0

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
