"""Static members that are fenced because of their own former life, or of another process with the same name.

A coordinator answers members before it has written down what they agreed on. If it is killed in between, the next one
knows the ids of before, and fences the member that comes back with the id that it was given since. A leader that agrees
to nothing (``GroupLeader``) keeps that moment open.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from stateflow.connectors.broker import EmbeddedKafka
from stateflow.errors import MembershipLost
from stateflow.log.base import TopicSpec
from stateflow.log.kafka import KafkaCluster, KafkaOptions
from stateflow.record import TopicPartition
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

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        self.told: list[str] = []
        self.member = cluster.group_consumer("g", ["t"], self, member=name)
        self.client = self.member._consumer

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["assigned"] * bool(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["revoked"] * bool(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["lost"] * bool(partitions)

    def is_told(self, *told: str) -> bool:
        """Poll once; whether it was told exactly that so far."""
        self.member.poll(10, 0.05)
        return self.told == list(told)


def while_polled(work: Callable[[], object], *processes: Process) -> None:
    """Do something that takes its time; whoever is not polled for too long forgets its id."""
    working = threading.Thread(target=work)
    working.start()
    while working.is_alive():
        for process in processes:
            process.member.poll(10, 0.05)
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
        wait_until(lambda: first.is_told("assigned", "lost"), "the end of the twin's partition")

        def killed() -> None:
            kafka.nodes[0].kill()
            kafka.restart_node(1)

        while_polled(killed, alone, first, second)
        again = ("assigned", "lost", "assigned")
        wait_until(
            lambda: alone.is_told(*again) & first.is_told(*again), lambda: f"{alone.told} {first.told}"
        )
        assert alone.client is not alone.member._consumer, "it was not fenced"
        with pytest.raises(MembershipLost, match="was replaced"):
            wait_until(
                lambda: not (alone.is_told(*again) and first.is_told(*again)) or second.is_told("x"),
                "one end",
            )
        assert alone.is_told(*again)
        assert first.is_told(*again)
        for process in (alone, first, second):
            process.member.close()
        cluster.close()


def is_stable(cluster: KafkaCluster) -> bool:
    """Whether no member is waited for."""
    holder = cluster._offsets.name_holder("g", "alone", 5.0)
    return holder is not None and holder.is_stable
