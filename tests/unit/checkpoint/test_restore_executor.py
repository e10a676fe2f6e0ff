"""Restoring from the memory log: exact to the key, from any crash, through any compaction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stateflow.changelog.format import TOUCH_KEY
from stateflow.checkpoint.changelog_policy import WHOLE_LOGS, ChangelogPolicy
from stateflow.checkpoint.planner import TaskPlan, plan_task
from stateflow.checkpoint.restore import Restoration, RestoreSettings
from stateflow.clock import ManualClock
from stateflow.errors import (
    BrokerUnreachable,
    ChangelogTrimmed,
    OffsetOutOfRange,
    TopicMissing,
    TopicRecreated,
)
from stateflow.log.base import TopicSpec
from stateflow.log.memory import MemoryCluster, MemoryReader
from stateflow.record import RecordBatch, TopicPartition
from stateflow.store.base import Change, StorePosition
from stateflow.store.memory import MemoryTaskStores

TOPIC = "app-a-changelog"
PARTITION = TopicPartition(TOPIC, 0)
SMALL = RestoreSettings(epoch_records_max=7, load_entries_min=3)


class Scene:
    """A changelog, its writer, and the state that it describes."""

    def __init__(
        self,
        policy: str = "compact",
        cluster: type[MemoryCluster] = MemoryCluster,
        log_policy: ChangelogPolicy = WHOLE_LOGS,
    ) -> None:
        self.log_policy = log_policy
        self.clock = ManualClock(1_000_000)
        self.cluster = cluster(self.clock)
        config = {
            "cleanup.policy": policy,
            "message.timestamp.type": "LogAppendTime",
            "delete.retention.ms": "1000",
        }
        self.topic_id = self.cluster.create([TopicSpec(TOPIC, 1, config=config)])[TOPIC].topic_id
        self.writer = self.cluster.writer("task")
        self.stores = MemoryTaskStores(["a"], self.clock)
        self.truth: dict[bytes, bytes] = {}

    def write(self, changes: Sequence[Change], *, commit: bool = True) -> None:
        self.writer.begin()
        for key, value in changes:
            self.writer.send(TOPIC, key, value, partition=0)
        if not commit:
            self.writer.abort()
            return
        self.writer.commit()
        for key, value in changes:
            if value is None:
                self.truth.pop(key, None)
            else:
                self.truth[key] = value

    def plan(self) -> TaskPlan:
        ids = {TOPIC: self.topic_id}
        return plan_task(
            self.cluster, "main-0", {"a": PARTITION}, ids, self.stores, self.clock, log_policy=self.log_policy
        )

    def restoration(self, settings: RestoreSettings = SMALL) -> Restoration:
        return Restoration(self.cluster, self.plan(), self.stores, self.clock, settings)

    def restore(self, settings: RestoreSettings = SMALL) -> Restoration:
        restoration = self.restoration(settings)
        restoration.run()
        return restoration

    @property
    def content(self) -> dict[bytes, bytes]:
        return dict(self.stores.reader("a").scan())

    @property
    def end(self) -> int:
        return self.cluster.ranges([PARTITION])[PARTITION].offset_next


def rows(first: int, after: int, value: bytes = b"v") -> list[Change]:
    return [(b"%04d" % i, value) for i in range(first, after)]


def test_nothing_written_is_done_at_once_and_stays_unknown() -> None:
    scene = Scene()
    restoration = scene.restoration()
    assert restoration.done
    assert restoration.step().fraction == 1.0
    assert scene.stores.position("a") is None


def test_what_nobody_knows_is_dropped_though_nothing_was_ever_written() -> None:
    """Killed while it dropped the content of an earlier topic: the position went first."""
    scene = Scene()
    scene.stores.apply({"a": rows(0, 3)}, {})
    scene.restore()
    assert scene.content == {}


def test_a_full_replay_ends_at_the_log_end_with_the_newest_values() -> None:
    scene = Scene()
    scene.write(rows(0, 50))
    scene.write(rows(10, 20, b"new"))
    scene.write([(b"0000", None), (b"0049", None)])
    restoration = scene.restore()
    assert scene.content == scene.truth
    assert scene.stores.position("a") == StorePosition(scene.topic_id, scene.end)
    progress = restoration.progress
    assert (progress.records_total, progress.slots_done, progress.slots_total) == (62, scene.end, scene.end)
    assert scene.plan().stores[0].action == "reuse"


def test_only_the_tail_is_read_onto_local_state() -> None:
    scene = Scene()
    scene.write(rows(0, 50))
    scene.restore()
    scene.write(rows(48, 52, b"tail"))
    scene.write([(b"0001", None)])
    restoration = scene.restore()
    assert restoration.progress.records_total == 5
    assert scene.content == scene.truth


def test_aborted_records_markers_and_compacted_gaps_do_not_stop_it() -> None:
    scene = Scene()
    scene.write(rows(0, 30))
    scene.write(rows(0, 30, b"aborted"), commit=False)
    for round_ in range(5):
        scene.write(rows(0, 30, b"%d" % round_))
    scene.cluster.compact(TOPIC)
    scene.write([(b"aborted at the end", b"x")], commit=False)
    restoration = scene.restore()
    assert scene.content == scene.truth
    assert restoration.progress.fraction == 1.0
    assert restoration.progress.records_total < restoration.progress.slots_total


def test_bookkeeping_records_are_not_state() -> None:
    scene = Scene()
    scene.write(rows(0, 10))
    scene.write([(TOUCH_KEY, b""), (b"\xff\xffsf", b"a user's key"), (b"\xff\xffsf\x01", b"another")])
    scene.restore()
    assert set(scene.content) == {*(b"%04d" % i for i in range(10)), b"\xff\xffsf", b"\xff\xffsf\x01"}


def test_the_target_is_fixed_once() -> None:
    scene = Scene()
    scene.write(rows(0, 10))
    restoration = scene.restoration()
    scene.write(rows(10, 500))
    assert restoration.progress.slots_total == 11
    while not restoration.done:
        restoration.step(5)
    assert restoration.progress.slots_done == 11
    position = scene.stores.position("a")
    assert position is not None
    assert 11 <= position.offset_next < scene.end


def test_it_stops_anywhere_and_goes_on_from_there() -> None:
    scene = Scene()
    for round_ in range(20):
        scene.write(rows(0, 10, b"%d" % round_))
    restoration = scene.restoration()
    for _ in range(5):
        restoration.step(10)
    restoration.close()
    plan = scene.plan().stores[0]
    assert plan.action == "tail"
    assert 0 < plan.offsets.offset_first < scene.end
    scene.restore()
    assert scene.content == scene.truth


def test_pausing_keeps_what_was_read() -> None:
    scene = Scene()
    scene.write(rows(0, 100))
    restoration = scene.restoration(RestoreSettings())
    restoration.step(40)
    restoration.pause()
    restoration.close()
    plan = scene.plan().stores[0]
    assert (plan.action, plan.offsets.offset_first) == ("tail", 40)
    scene.restore()
    assert scene.content == scene.truth


def test_residue_without_a_position_is_dropped_before_a_replay() -> None:
    scene = Scene()
    scene.write(rows(0, 5))
    scene.stores.apply({"a": [(b"residue of a crash", b"x")]}, {})
    scene.restore()
    assert scene.content == scene.truth


def test_a_store_older_than_the_tombstones_is_replayed() -> None:
    scene = Scene()
    scene.write(rows(0, 10))
    scene.restore()
    scene.write([(b"0003", None)])
    scene.write(rows(5, 9, b"later"))
    for _ in range(3):  # the tombstone falls out of the log
        scene.clock.advance(ms=2_000)
        scene.cluster.compact(TOPIC)
    assert scene.plan().stores[0].action == "replay"
    scene.restore()
    assert scene.content == scene.truth
    assert b"0003" not in scene.content


@pytest.mark.parametrize("trim_to", [30, 44])
def test_a_log_whose_beginning_moves_past_us_must_be_planned_anew(trim_to: int) -> None:
    scene = Scene("compact,delete")
    for round_ in range(4):
        scene.write(rows(0, 10, b"%d" % round_))
    restoration = scene.restoration()
    restoration.step(10)
    restoration.step(5)
    scene.cluster.trim({PARTITION: trim_to})
    with pytest.raises(ChangelogTrimmed, match=f"begins at {trim_to}"):
        restoration.run()
    restoration.close()
    with pytest.raises(ChangelogTrimmed):
        scene.plan()


def test_who_only_measures_reads_on_where_the_log_begins_by_then() -> None:
    scene = Scene("compact,delete", log_policy=ChangelogPolicy(accept_trimmed=True))
    for round_ in range(4):
        scene.write(rows(0, 10, b"%d" % round_))
    restoration = scene.restoration()
    restoration.step(15)
    scene.cluster.trim({PARTITION: 30})
    restoration.run()
    assert scene.content == {b"%04d" % i: b"3" for i in range(10)}
    assert restoration.progress.fraction == 1.0


def test_a_log_that_keeps_running_away_is_an_error_in_the_end() -> None:
    scene = Scene("compact,delete", log_policy=ChangelogPolicy(accept_trimmed=True))
    scene.write(rows(0, 100))
    restoration = Restoration(
        scene.cluster, scene.plan(), scene.stores, scene.clock, RestoreSettings(replans_max=2)
    )
    offset = 0
    with pytest.raises(OffsetOutOfRange):  # noqa: PT012 - the last step raises
        for _ in range(4):
            restoration.step(5)
            offset += 12
            scene.cluster.trim({PARTITION: offset})
    restoration.close()


class DeafReader(MemoryReader):
    """A reader that hears nothing, as behind a broken network."""

    def read(self, max_records: int, timeout_seconds: float) -> list[RecordBatch]:
        return []


class DeafCluster(MemoryCluster):
    def reader(self, *, follows: bool = False) -> MemoryReader:
        return DeafReader(self._broker)


def test_standing_still_is_told() -> None:
    scene = Scene(cluster=DeafCluster)
    scene.write(rows(0, 5))
    restoration = scene.restoration(RestoreSettings(stall_seconds=60))
    restoration.step()
    scene.clock.advance(seconds=59)
    restoration.step()
    scene.clock.advance(seconds=2)
    with pytest.raises(BrokerUnreachable, match="stood still for 60 s"):
        restoration.step()


def test_a_partly_read_tail_keeps_the_age_of_what_it_is_read_onto() -> None:
    scene = Scene()
    scene.write(rows(0, 10))
    scene.restore()
    restored = scene.stores.position("a")
    for round_ in range(5):
        scene.write(rows(0, 10, b"%d" % round_))
    scene.clock.advance(ms=900)
    restoration = scene.restoration()
    restoration.step(20)
    restoration.close()
    partly = scene.stores.position("a")
    assert restored is not None
    assert partly is not None
    assert partly.offset_next > restored.offset_next
    assert partly.applied_ms == restored.applied_ms
    scene.clock.advance(ms=200)
    assert scene.plan().stores[0].action == "replay"
    scene.restore()
    assert scene.content == scene.truth


def test_a_tail_that_outlives_the_tombstones_is_replayed_whole() -> None:
    scene = Scene()
    scene.write(rows(0, 10))
    scene.restore()
    scene.write(rows(10, 40))
    scene.write([(b"0003", None)])
    restoration = scene.restoration()
    restoration.step(10)
    for _ in range(3):
        scene.clock.advance(ms=1_100)
        scene.cluster.compact(TOPIC)
    restoration.run()
    assert scene.content == scene.truth


def test_a_replay_that_outlives_the_tombstones_says_so(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.write(rows(0, 10))
    restoration = scene.restoration()
    scene.clock.advance(ms=1_001)
    restoration.run()
    assert "delete.retention.ms" in caplog.text


def test_a_recreated_or_missing_topic_is_refused() -> None:
    scene = Scene()
    scene.write(rows(0, 5))
    scene.restore()
    scene.cluster.delete([TOPIC])
    with pytest.raises(TopicMissing):
        scene.plan()
    scene.cluster.create([TopicSpec(TOPIC, 1, config={"cleanup.policy": "compact"})])
    with pytest.raises(TopicRecreated):
        scene.plan()


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.binary(max_size=2))), min_size=1),
        ),
        st.tuples(st.just("abort"), st.lists(st.tuples(st.integers(0, 12), st.just(b"x")), min_size=1)),
        st.tuples(st.just("compact"), st.integers(0, 900)),
        st.tuples(st.just("forget tombstones"), st.none()),
        st.tuples(st.just("restore some"), st.integers(1, 20)),
        st.tuples(st.just("restore"), st.none()),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("flush"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_after_any_history_a_restore_equals_the_truth(steps: list[tuple[str, object]]) -> None:
    scene = Scene()
    for action, argument in steps:
        match action:
            case "write" | "abort":
                assert isinstance(argument, list)
                changes = [(b"%02d" % key, value) for key, value in argument]
                scene.write(changes, commit=action == "write")
            case "compact":
                assert isinstance(argument, int)
                scene.clock.advance(ms=argument)
                scene.cluster.compact(TOPIC)
            case "forget tombstones":
                for _ in range(3):
                    scene.clock.advance(ms=1_100)
                    scene.cluster.compact(TOPIC)
            case "restore some":
                assert isinstance(argument, int)
                restoration = scene.restoration()
                restoration.step(argument)
                restoration.close()
            case "restore":
                scene.restore()
                assert scene.content == scene.truth
            case "crash":
                scene.stores.crash()
            case "flush":
                scene.stores.flush()
    scene.restore()
    assert scene.content == scene.truth
