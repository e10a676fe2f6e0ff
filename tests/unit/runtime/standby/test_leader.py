"""The leader of the members while brokers are away: it decides on all that was decided before, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stateflow.clock import ManualClock
from stateflow.errors import BrokerUnreachable
from stateflow.log.base import GroupListener
from stateflow.log.memory import MemoryCluster
from stateflow.log.reading import read_topic
from stateflow.runtime.standby.assignment import Shape
from stateflow.runtime.standby.leader import Leader
from stateflow.runtime.standby.membership_log import MembershipLog
from stateflow.runtime.worker.member_records import (
    MemberRecord,
    MembershipTopic,
    Placement,
    create_membership_topic,
    encode_member,
    encode_placement,
    membership_partition,
)
from tests.sim.crashing import Watched

APP = "shop"
SHAPE = Shape({"count": ("count-0", "count-1")}, frozenset({"count-0", "count-1"}))


class Listener(GroupListener):
    def on_assigned(self, partitions: Any) -> None: ...

    def on_revoked(self, partitions: Any) -> None: ...

    def on_lost(self, partitions: Any) -> None: ...


class NoAnswer:
    """The next call of one name gets no answer, whether or not it was carried out."""

    def __init__(self) -> None:
        self.to: str | None = None
        self.is_carried_out = False

    def run(self, what: str, call: Callable[[], Any]) -> Any:
        if what != self.to:
            return call()
        self.to = None
        if self.is_carried_out:
            call()
        raise BrokerUnreachable(f"no answer to {what}.", action="wait.")


class AwayNow(Watched):
    def __init__(self, real: Any, plan: NoAnswer) -> None:
        super().__init__(real, plan, ("ranges",))  # type: ignore[arg-type]

    def writer(self, transactional_id: str | None = None) -> Any:
        return Watched(self._real.writer(transactional_id), self._plan, ("send", "commit"))


class Members:
    """A group of one member, which leads."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.cluster = MemoryCluster(clock=self.clock, max_poll_interval_ms=3_600_000)
        create_membership_topic(self.cluster, APP, 1)
        self.group = self.cluster.group_consumer(APP, [membership_partition(APP).topic], Listener())
        self.group.poll(1, 0)
        record = MemberRecord(
            name="w0", member_id=self.group.member_id, host="h", pid=1, disk="d", generation=0
        )
        self.plan = NoAnswer()
        self.log = MembershipLog(self.cluster, APP)
        self.log.write(*encode_member(record))
        away = AwayNow(self.cluster, self.plan)
        self.leader = Leader(away, APP, 0, SHAPE, self.log, 0.0, self.clock)

    def write(self, placement: Placement) -> None:
        """As the leader before it did."""
        writer = self.cluster.writer(f"{APP}-placement")
        writer.begin()
        place = membership_partition(APP)
        writer.send(place.topic, *encode_placement(placement), partition=place.partition)
        writer.commit()
        writer.close()

    def read(self) -> None:
        """To the end."""
        while self.log.read(0):
            pass

    def turn(self) -> None:
        """A turn of the leader that has not read on."""
        self.clock.advance(ms=5_000)
        self.group.poll(1, 0)
        self.leader.turn("w0", news=True)

    @property
    def numbers(self) -> list[int]:
        """Of all decisions, in order."""
        found = []
        for batch in read_topic(self.cluster, membership_partition(APP).topic):
            for record in batch.records():
                topic = MembershipTopic()
                topic.take(record.key, record.value)
                found += [topic.placement.number] if topic.placement is not None else []
        return found


def placement(number: int) -> Placement:
    return Placement(
        number=number, generation=0, leader="w9", members={"w9": "gone"}, active={}, standby={}, warmup={}
    )


def test_a_leader_that_could_not_learn_where_the_log_ends_decides_on_nothing_it_has_not_read() -> None:
    members = Members()
    members.write(placement(6))
    members.read()
    members.write(placement(7))
    members.plan.to = "ranges"
    with pytest.raises(BrokerUnreachable):
        members.turn()
    members.turn()
    assert members.numbers == [6, 7], "the seventh decision was not read yet"
    members.read()
    members.turn()
    assert members.numbers == [6, 7, 8]


@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("call", ["send", "commit"])
def test_a_decision_without_an_answer_is_followed_by_the_next(call: str, is_carried_out: bool) -> None:
    members = Members()
    members.read()
    members.plan.to, members.plan.is_carried_out = call, is_carried_out
    with pytest.raises(BrokerUnreachable):
        members.turn()
    for _ in range(3):
        members.turn()
        members.read()
    assert members.numbers == [0]
    members.clock.advance(ms=300_001)  # so that the decision is repeated
    members.turn()
    assert members.numbers == [0, 1]
