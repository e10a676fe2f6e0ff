"""What only the memory log can do: stop abruptly, move time by hand, and compact on command."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.clock import ManualClock
from stateflow.errors import BrokerRefused, MembershipLost, ProducerFenced
from stateflow.log.base import Cluster, Committed, TopicSpec
from stateflow.log.memory import MemoryCluster
from stateflow.record import OffsetRange, Record, TopicPartition

START_MS = 1_700_000_000_000
PLACE = TopicPartition("t", 0)


class Told:
    """A listener that notes what it is told."""

    def __init__(self) -> None:
        self.owned: list[int] = []
        self.lost: list[int] = []

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned += [p.partition for p in partitions]

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned = [p for p in self.owned if TopicPartition("t", p) not in partitions]

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.lost += [p.partition for p in partitions]
        self.owned = []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def cluster(clock: ManualClock) -> MemoryCluster:
    made = MemoryCluster(clock)
    made.create([TopicSpec("t", 1), TopicSpec("c", 1, config={"cleanup.policy": "compact"})])
    return made


def read(cluster: MemoryCluster, topic: str = "t", offset_first: int = 0) -> list[Record]:
    reader = cluster.reader()
    reader.assign({TopicPartition(topic, 0): offset_first})
    return [record for batch in reader.read(10_000, 0) for record in batch.records()]


def test_it_is_a_cluster() -> None:
    cluster: Cluster = MemoryCluster()
    assert cluster.list_topics() == []


def test_a_killed_transactional_writer_holds_readers_back_until_its_timeout(
    cluster: MemoryCluster, clock: ManualClock
) -> None:
    writer = cluster.writer("tx")
    writer.begin()
    writer.send("t", b"k", b"half", partition=0)
    writer.kill()
    cluster.writer().send("t", b"k", b"after", partition=0)
    clock.advance(ms=59_999)
    assert read(cluster) == []
    assert cluster.ranges([PLACE]) == {PLACE: OffsetRange(0, 0)}
    assert cluster.ranges([PLACE], stable=False) == {PLACE: OffsetRange(0, 2)}
    clock.advance(ms=1)
    assert [record.value for record in read(cluster)] == [b"after"]
    assert cluster.ranges([PLACE]) == {PLACE: OffsetRange(0, 3)}


def test_a_writer_whose_transaction_timed_out_is_fenced(cluster: MemoryCluster, clock: ManualClock) -> None:
    writer = cluster.writer("tx")
    writer.begin()
    writer.send("t", b"k", b"late", partition=0)
    clock.advance(seconds=60)
    with pytest.raises(ProducerFenced):
        writer.send("t", b"k", b"later", partition=0)
    assert read(cluster) == []


def test_what_was_not_flushed_dies_with_its_writer(clock: ManualClock) -> None:
    cluster = MemoryCluster(clock, linger_records=100)
    cluster.create([TopicSpec("t", 1)])
    writer = cluster.writer()
    writer.send("t", b"k", b"flushed", partition=0)
    writer.commit()
    writer.send("t", b"k", b"waiting", partition=0)
    assert [record.value for record in read(cluster)] == [b"flushed"]
    writer.kill()
    assert [record.value for record in read(cluster)] == [b"flushed"]


def test_a_full_buffer_is_sent_by_itself(clock: ManualClock) -> None:
    cluster = MemoryCluster(clock, linger_records=2)
    cluster.create([TopicSpec("t", 1)])
    writer = cluster.writer()
    for n in range(3):
        assert read(cluster) == []
        writer.send("t", b"k", b"%d" % n, partition=0)
    assert len(read(cluster)) == 3


def test_a_killed_member_keeps_its_partitions_until_its_session_ends(clock: ManualClock) -> None:
    cluster = MemoryCluster(clock, session_timeout_ms=10_000)
    cluster.create([TopicSpec("t", 2)])
    told, other_told = Told(), Told()
    member = cluster.group_consumer("g", ["t"], told)
    other = cluster.group_consumer("g", ["t"], other_told)
    member.poll(1, 0)
    other.poll(1, 0)
    assert (len(told.owned), len(other_told.owned)) == (1, 1)
    member.kill()
    clock.advance(ms=9_999)
    other.poll(1, 0)
    assert len(other_told.owned) == 1
    assert len(cluster.group_members("g")) == 2
    clock.advance(ms=1)
    other.poll(1, 0)
    assert sorted(other_told.owned) == [0, 1]
    assert len(told.owned) == 1, "the dead are told nothing"


def test_a_killed_static_member_comes_back_to_what_it_had(clock: ManualClock) -> None:
    cluster = MemoryCluster(clock)
    cluster.create([TopicSpec("t", 2)])
    told, other_told, again_told = Told(), Told(), Told()
    member = cluster.group_consumer("g", ["t"], told, member="a")
    other = cluster.group_consumer("g", ["t"], other_told, member="b")
    member.poll(1, 0)
    other.poll(1, 0)
    member.kill()
    proof = other.metadata()
    again = cluster.group_consumer("g", ["t"], again_told, member="a")
    again.poll(1, 0)
    assert again_told.owned == told.owned
    assert other.metadata() == proof, "nobody else noticed"


def test_a_stale_proof_of_membership_is_refused_after_every_rebalance(cluster: MemoryCluster) -> None:
    member = cluster.group_consumer("g", ["t"], Told())
    member.poll(1, 0)
    proof = member.metadata()
    cluster.group_consumer("g", ["t"], Told())
    writer = cluster.writer("tx")
    writer.begin()
    with pytest.raises(Exception, match="aborted"):
        writer.send_offsets({PLACE: Committed(1)}, "g", proof)
    writer.begin()
    writer.send_offsets({PLACE: Committed(2)}, "g", member.metadata())
    writer.commit()
    assert cluster.committed("g", [PLACE]) == {PLACE: Committed(2)}


def test_a_member_that_did_not_poll_is_told_what_it_lost(cluster: MemoryCluster, clock: ManualClock) -> None:
    told = Told()
    member = cluster.group_consumer("g", ["t"], told)
    member.poll(1, 0)
    clock.advance(seconds=300)
    with pytest.raises(MembershipLost):
        member.commit({PLACE: Committed(1)})
    member.poll(1, 0)
    assert told.lost == [0]
    assert told.owned == [0], "it joined again, alone"


def test_new_partitions_are_shared_out(cluster: MemoryCluster) -> None:
    told = Told()
    member = cluster.group_consumer("g", ["t"], told)
    member.poll(1, 0)
    cluster.delete(["t"])
    member.poll(1, 0)
    assert told.owned == []
    cluster.create([TopicSpec("t", 3)])
    member.poll(1, 0)
    assert told.owned == [0, 1, 2]


def test_deleting_a_topic_forgets_what_groups_committed_in_it(cluster: MemoryCluster) -> None:
    cluster.commit("g", {PLACE: Committed(3), TopicPartition("c", 0): Committed(4)})
    cluster.delete(["t"])
    assert cluster.committed("g", [PLACE, TopicPartition("c", 0)]) == {TopicPartition("c", 0): Committed(4)}


def test_a_topic_deleted_during_a_transaction(cluster: MemoryCluster) -> None:
    writer = cluster.writer("tx")
    writer.begin()
    writer.send("t", b"k", b"v", partition=0)
    writer.send("c", b"k", b"v", partition=0)
    cluster.delete(["t"])
    writer.commit()
    assert [record.value for record in read(cluster, "c")] == [b"v"]


def test_log_append_time_is_the_clocks(cluster: MemoryCluster, clock: ManualClock) -> None:
    cluster.alter_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    clock.advance(ms=5)
    writer = cluster.writer()
    writer.send("t", b"k", b"v", partition=0, timestamp_ms=1)
    assert writer.commit()[PLACE].timestamp_ms == START_MS + 5


def test_markers_go_once_their_records_are_gone(cluster: MemoryCluster, clock: ManualClock) -> None:
    writer = cluster.writer("tx")
    for n in range(3):
        writer.begin()
        writer.send("c", b"k", b"%d" % n, partition=0)
        writer.commit()
    assert cluster.compact("c") == 2, "the two older values"
    assert cluster.compact("c") == 0, "their markers are kept for the retention of tombstones"
    clock.advance(ms=86_400_000)
    assert cluster.compact("c") == 2
    assert [record.offset for record in read(cluster, "c")] == [4]
    assert cluster.ranges([TopicPartition("c", 0)])[TopicPartition("c", 0)] == OffsetRange(0, 6)


def test_the_active_part_is_left_alone(cluster: MemoryCluster) -> None:
    writer = cluster.writer()
    for n in range(10):
        writer.send("c", b"k", b"%d" % n, partition=0)
    assert cluster.compact("c", active_slots=20) == 0
    assert cluster.compact("c", active_slots=4) == 5
    assert [record.offset for record in read(cluster, "c")] == [5, 6, 7, 8, 9]


def test_a_setting_without_meaning_is_refused(cluster: MemoryCluster) -> None:
    with pytest.raises(BrokerRefused):
        cluster.alter_topic_config("t", {"cleanup.policy": "sometimes"})


def test_threads_may_share_a_cluster(cluster: MemoryCluster) -> None:
    def write() -> None:
        writer = cluster.writer()
        for n in range(500):
            writer.send("t", b"k", b"%d" % n, partition=0)
        writer.commit()

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read(cluster)
    assert [record.offset for record in found] == list(range(2000))
    assert sorted(int(record.value) for record in found) == sorted([*range(500)] * 4)


KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.one_of(st.none(), st.binary(max_size=2))),
        st.tuples(st.sampled_from(["begin", "commit", "abort", "compact", "day"])),
    ),
    max_size=60,
)


@given(STEPS)
def test_cleaning_never_changes_what_a_replay_ends_with(steps: list[tuple[object, ...]]) -> None:
    """A replay of the cleaned log gives the newest committed value of every key, whatever happened on the way."""
    clock = ManualClock(START_MS)
    cluster = MemoryCluster(clock, transaction_timeout_ms=10**12)
    cluster.create([TopicSpec("c", 1, config={"cleanup.policy": "compact"})])
    writer, is_open = cluster.writer("tx"), False
    truth: dict[bytes, bytes | None] = {}
    pending: dict[bytes, bytes | None] = {}
    for step in steps:
        match step:
            case ("put", bytes() as key, (bytes() | None) as value):
                if not is_open:
                    writer.begin()
                    is_open = True
                writer.send("c", key, value, partition=0)
                pending[key] = value
            case ("commit",) if is_open:
                writer.commit()
                truth.update(pending)
                pending, is_open = {}, False
            case ("abort",) if is_open:
                writer.abort()
                pending, is_open = {}, False
            case ("compact",):
                cluster.compact("c", active_slots=0)
            case ("day",):
                clock.advance(ms=86_400_000)
    end = cluster.ranges([TopicPartition("c", 0)])[TopicPartition("c", 0)].offset_next
    state = {record.key: record.value for record in read(cluster, "c")}
    assert {k: v for k, v in state.items() if v is not None} == {
        k: v for k, v in truth.items() if v is not None
    }
    cluster.compact("c")
    assert cluster.ranges([TopicPartition("c", 0)])[TopicPartition("c", 0)].offset_next == end


def test_a_client_that_comes_back_amid_a_revocation_is_told_of_its_loss_first(clock: ManualClock) -> None:
    cluster = MemoryCluster(clock)
    cluster.create([TopicSpec("t", 2)])

    class Slow(Told):
        def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            clock.advance(seconds=400)
            assert member.renewed(proof) == proof, "it is another member by now"
            super().on_revoked(partitions)

        def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            assert not self.owned, "it was told nothing of what it has lost"
            super().on_assigned(partitions)

    told = Slow()
    member = cluster.group_consumer("g", ["t"], told)
    member.poll(1, 0)
    proof = member.metadata()
    other = cluster.group_consumer("g", ["t"], Told())
    member.poll(1, 0)
    assert len(told.owned) == 1
    assert not told.lost
    other.poll(1, 0)
    member.poll(1, 0)
    assert len(told.lost) == 1
