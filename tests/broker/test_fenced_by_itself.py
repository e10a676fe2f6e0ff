"""Static members that are fenced because of their own former life, or of another process with the same name.

A coordinator answers members before it has written down what they agreed on. If it is killed in between, the next one
knows the ids of before, and fences the member that comes back with the id that it was given since. A leader that agrees
to nothing (``GroupLeader``) keeps that moment open.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence

import pytest

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import MembershipLost
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.record import TopicPartition
from stateflow.testing.broker import TestBroker
from tests.broker.command_site import Process as WorkerProcess
from tests.broker.command_site import Site
from tests.broker.group_leader import GroupLeader
from tests.waiting import wait_until

pytestmark = pytest.mark.broker

SESSION_MS = 4_000
OPTIONS = KafkaOptions(
    session_timeout_ms=SESSION_MS, max_poll_interval_ms=SESSION_MS, heartbeat_interval_ms=300
)
SETTINGS = {"reconnect.backoff.max.ms": 300}
"""A member is back before the coordinator misses it."""


class Process:
    """A member as one process has it; remembers what it was told."""

    def __init__(self, cluster: KafkaCluster, name: str, group: str = "g", topic: str = "t") -> None:
        self.told: list[str] = []
        self.member = cluster.group_consumer(group, [topic], self, member=name)
        self.client = self.member._consumer

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["assigned"] * bool(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["revoked"] * bool(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["lost"] * bool(partitions)

    def poll(self) -> None:
        """Serve its group for a moment."""
        self.member.poll(10, 0.05)

    def is_told(self, *told: str) -> bool:
        """Poll once; whether it was told exactly that so far."""
        self.poll()
        return self.told == list(told)


def while_polled(work: Callable[[], object], *processes: Process) -> None:
    """Do something that takes its time; whoever is not polled for too long forgets its id."""
    working = threading.Thread(target=work)
    working.start()
    while working.is_alive():
        for process in processes:
            process.poll()
    working.join()


@pytest.mark.timeout(180)
def test_members_of_their_own_names_go_on_when_the_coordinator_goes_back_to_former_ids() -> None:
    with EmbeddedKafka() as kafka:
        cluster = KafkaCluster(kafka.bootstrap, SETTINGS, OPTIONS)
        cluster.create([TopicSpec("t", 2)])
        cluster.group_members("g")  # waits for the coordinator
        leader = GroupLeader(kafka.bootstrap, "g", "t")
        leader.join()
        leader.sync({})
        alone, first = Process(cluster, "alone"), Process(cluster, "twins")
        leader.join_until(lambda others: len(others) == 2)
        by_name = dict(
            zip(sorted(leader.others), (TopicPartition("t", 0), TopicPartition("t", 1)), strict=True)
        )
        leader.sync({member_id: [place] for member_id, place in by_name.items()})
        wait_until(lambda: alone.is_told("assigned") & first.is_told("assigned"), "their partitions")
        agreed = set(leader.others)

        # Not polled for too long it forgets its id, and is given another one with the next generation.
        wait_until(
            lambda: first.is_told("assigned") and not alone.member.member_id, "the end of a membership"
        )
        joining = threading.Thread(target=leader.join)
        joining.start()
        wait_until(lambda: not is_stable(cluster) and first.is_told("assigned"), "the leader")
        while_polled(joining.join, alone, first)
        assert len(leader.others & agreed) == 1, "one has another id, to which nobody has agreed"
        second = Process(cluster, "twins")
        while_polled(lambda: leader.join_until(lambda others: not others & agreed), alone)
        with pytest.raises(MembershipLost, match="another process has its name"):
            wait_until(lambda: first.is_told("x"), "the end of the one that was there before")
        assert first.told == ["assigned", "lost"]
        first.member.close()

        def killed() -> None:
            kafka.nodes[0].kill()
            kafka.restart_node(1)
            cluster.group_members("g")  # waits for the coordinator
            leader.leave()

        while_polled(killed, alone, second)
        # The second one has been fenced by the name of a dead one, whose session it waits for. Meanwhile the other may
        # have had both partitions.
        wait_until(lambda: second.is_told("assigned"), lambda: f"{alone.told} {second.told}", alone.poll)
        assert alone.told[:3] == ["assigned", "lost", "assigned"]
        assert set(alone.told[3:]) <= {"assigned", "revoked"}
        for process in (alone, second):
            assert process.client is not process.member._consumer, "it was not fenced"
            process.member.close()
        cluster.close()


def test_a_member_whose_name_another_process_takes_ends_at_once(broker: TestBroker) -> None:
    """It took two sessions and more until the other one was known to be alive."""
    cluster = KafkaCluster(broker.bootstrap, SETTINGS, OPTIONS)
    group = f"g-{uuid.uuid4().hex[:8]}"
    cluster.create([TopicSpec(f"{group}-t", 1)])
    first = Process(cluster, "same", group, f"{group}-t")
    wait_until(lambda: first.is_told("assigned"), "its partition")
    second = Process(cluster, "same", group, f"{group}-t")
    wait_until(lambda: second.is_told("assigned"), "the other's partition")
    began_seconds = time.monotonic()
    with pytest.raises(MembershipLost, match="another process has its name"):
        wait_until(lambda: first.is_told("x"), "its end")
    assert time.monotonic() - began_seconds < 2 * SESSION_MS / 1000
    assert first.told == ["assigned", "lost"]
    assert second.is_told("assigned")
    for process in (first, second):
        process.member.close()
    cluster.close()


def test_a_worker_whose_name_another_takes_says_so_and_nothing_else(site: Site) -> None:
    site.topic("in", "out", partitions=2)
    said = site.place / "said.txt"
    first = site.begin("run", site.digits, "--name", "same")
    try:
        first.until("is running", 3)
        wait_until(lambda: len(site.cluster.group_members(site.name)) == 1, "its membership")
        before = said.read_text()
        site.set(STATEFLOW_STATE_DIR=str(site.place / "elsewhere"))
        second = WorkerProcess(site.command("run", site.digits, "--name", "same"), site.place / "second.txt")
        try:
            assert first.ended() == MembershipLost.exit_code, first.said
            second.until("is running", 3)
        finally:
            second.close()
    finally:
        first.close()
    lines = first.said.removeprefix(before).strip().splitlines()
    told = [
        line for line in lines if not line.startswith("same: task ") and " starts again from " not in line
    ]
    assert len(told) == 1, first.said
    assert "another process has its name" in told[0]


def is_stable(cluster: KafkaCluster) -> bool:
    """Whether no member is waited for."""
    holder = cluster._offsets.name_holder("g", "alone", 5.0)
    return holder is not None and holder.is_stable
