"""A static member that is fenced because of its own former life, or of another process with the same name.

A coordinator writes down what a group has agreed on, and answers members before that. If it is killed in between, the
next one knows the ids of before, and fences the member that comes back with the id that it was given since. A leader
that agrees to nothing (``GroupLeader``) keeps that moment open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

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
NAME = "w0"
PLACE = TopicPartition("t", 0)


class Fixture:
    """A broker, a group and its leader."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.cluster = KafkaCluster(kafka.bootstrap, SETTINGS, OPTIONS)
        self.cluster.create([TopicSpec("t", 1)])
        self.cluster.group_members("g")  # waits for the coordinator
        self.leader = GroupLeader(kafka.bootstrap, "g", "t")
        self.leader.join()
        self.leader.sync({})

    def killed(self) -> None:
        """The broker is killed, and comes back."""
        self.kafka.nodes[0].kill()
        self.kafka.restart_node(1)
        self.cluster.group_members("g")

    def is_in_rebalance(self) -> bool:
        """Whether members are waited for."""
        holder = self.cluster._offsets.name_holder("g", NAME, 5.0)
        return holder is not None and not holder.is_stable


class Process:
    """A member as one process has it; remembers what it was told."""

    def __init__(self, fixture: Fixture) -> None:
        self.told: list[str] = []
        self.member = fixture.cluster.group_consumer("g", ["t"], self, member=NAME)

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["assigned"] * bool(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["revoked"] * bool(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told += ["lost"] * bool(partitions)

    def until(self, *told: str) -> None:
        """Poll until it was told exactly that."""
        wait_until(
            lambda: self.poll() == list(told), lambda: f"{told}, but it was {self.told}", every_seconds=0
        )

    def poll(self) -> list[str]:
        """Poll once; returns what it was told so far."""
        self.member.poll(10, 0.1)
        return self.told


@pytest.fixture(scope="module")
def fixture() -> Iterator[Fixture]:
    with EmbeddedKafka() as kafka:
        fixture = Fixture(kafka)
        yield fixture
        fixture.cluster.close()


def joined(fixture: Fixture) -> Process:
    """A member that has the partition, which the coordinator has written down."""
    process = Process(fixture)
    known = set(fixture.leader.others)
    fixture.leader.join_until(lambda others: bool(others - known))
    fixture.leader.sync({other: [PLACE] for other in fixture.leader.others})
    process.until("assigned")
    return process


def test_a_member_goes_on_whose_newest_id_a_killed_coordinator_had_not_written_down(fixture: Fixture) -> None:
    process = joined(fixture)
    known = process.member.member_id
    # Not polled for too long it forgets its id, and is given another one by the next generation.
    wait_until(lambda: not process.member.member_id, "its end by its client's own word")
    joining = threading.Thread(target=fixture.leader.join)
    joining.start()
    wait_until(fixture.is_in_rebalance, "the leader")
    wait_until(lambda: bool(process.poll()) and not joining.is_alive(), "the generation", every_seconds=0)
    joining.join()
    assert fixture.leader.others not in ({known}, set())
    fixture.killed()
    process.until("assigned", "lost", "assigned")
    process.member.close()


def test_of_two_processes_of_one_name_one_stays_when_the_coordinator_goes_back(fixture: Fixture) -> None:
    first = joined(fixture)
    known = first.member.member_id
    second = Process(fixture)
    fixture.leader.join_until(lambda others: others not in ({known}, set()))
    first.until("assigned", "lost")
    assert first.member.member_id == ""
    fixture.killed()
    first.until("assigned", "lost", "assigned")
    with pytest.raises(MembershipLost, match="was replaced"):
        wait_until(lambda: "" in (*first.poll(), *second.poll()), "the end of one of them", every_seconds=0)
    assert first.told == ["assigned", "lost", "assigned"]
    first.member.close()
    second.member.close()
