"""The small parts of the tuner: sketch, record sizes, journal, wire formats, charts, restore rates."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.clock import ManualClock
from stateflow.compaction.cluster.logdirs import ReplicaSize, broker_version, describe_log_dirs
from stateflow.compaction.control.journal import Journal, JournalEntry
from stateflow.compaction.pages.charts import Axis, Mark, Series, line_chart, scatter, span
from stateflow.compaction.sensing.cleaner_checkpoint import FILE_NAME, cleaned_offsets
from stateflow.compaction.sensing.record_sizes import estimate
from stateflow.compaction.sensing.restore_probe import RestoreProbe, fit_rate
from stateflow.compaction.sensing.scan import ScanOptions, scan
from stateflow.compaction.sensing.sketch import KeySketch
from stateflow.errors import BrokerRefused, StateCorrupt
from stateflow.log.base import TopicSpec, Writer
from stateflow.log.kafka.wire import WireConnection
from stateflow.log.kafka.wire_types import kafka_string
from stateflow.log.memory import MemoryCluster
from stateflow.record import TopicPartition


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=200))
def test_a_sketch_with_room_is_exact(records: list[tuple[int, bool]]) -> None:
    sketch, newest = KeySketch(64), dict[int, bool]()
    for number, gone in records:
        newest[number] = gone
        sketch.add([b"%d" % number], [None if gone else b"v"], [number])
    assert sketch.is_exact
    assert sketch.distinct() == len(newest)
    assert sketch.tombstones() == sum(newest.values())


def test_a_full_sketch_estimates_within_its_error() -> None:
    sketch = KeySketch(4096)
    keys = [b"key-%d" % number for number in range(200_000)]
    sketch.add(keys, [None if number % 4 == 0 else b"v" for number in range(200_000)], range(200_000))
    assert not sketch.is_exact
    assert sketch.distinct() == pytest.approx(200_000, rel=5 * sketch.relative_error)
    assert sketch.tombstones() == pytest.approx(50_000, rel=0.15)


def test_records_without_a_key_are_no_keys() -> None:
    sketch = KeySketch(16)
    sketch.add([None, b"a"], [b"x", b"y"], [1, 1])
    assert sketch.distinct() == 1


def test_uncompressed_survivors_take_little_more_than_appended_ones() -> None:
    found = estimate(
        [0, 57_100, 114_200, 171_300], [0, 100, 200, 300], average=571, uncompressed=560, live_records=100
    )
    assert found.appended == pytest.approx(571)
    assert found.appended < found.live <= found.live_high <= found.appended + 61


def test_compressed_survivors_are_told_by_the_trough_when_there_is_one() -> None:
    sizes, ends = [50_000, 54_000, 58_000, 62_000, 42_000, 46_000], [0, 100, 200, 300, 400, 500]
    seen = estimate(sizes, ends, average=50, uncompressed=600, live_records=100)
    assert seen.appended == pytest.approx(40)
    assert seen.live == pytest.approx(420)
    unseen = estimate(sizes[:4], ends[:4], average=50, uncompressed=600, live_records=100)
    assert seen.live < unseen.live <= unseen.live_high == pytest.approx(671)


def test_without_growth_the_average_has_to_do() -> None:
    assert estimate([1000], [5], average=77.0, uncompressed=50, live_records=10).appended == 77.0


def entry(
    changes: dict[str, str | None], before: dict[str, str | None], session: str | None = None
) -> JournalEntry:
    return JournalEntry("t", 1, changes, before, session=session)


def test_a_journal_goes_back_one_change_at_a_time(tmp_path: Path) -> None:
    journal = Journal("cluster/1", tmp_path)
    first, second = (
        entry({"segment.ms": "1"}, {"segment.ms": None}),
        entry({"segment.ms": "2"}, {"segment.ms": "1"}),
    )
    journal.append(first)
    journal.append(second)
    assert Journal("cluster/1", tmp_path).last_applied("t") == second
    journal.mark_rolled_back(second, 9)
    assert journal.last_applied("t") == first
    journal.mark_rolled_back(first, 10)
    assert journal.last_applied("t") is None
    assert journal.last_applied("other") is None


def test_a_session_is_one_entry_that_remembers_what_stood_before_it(tmp_path: Path) -> None:
    journal = Journal("c", tmp_path)
    journal.append(entry({"segment.ms": "1"}, {"segment.ms": None}, "s"))
    journal.append(
        entry({"segment.ms": "2", "segment.bytes": "9"}, {"segment.ms": "1", "segment.bytes": "7"}, "s")
    )
    (only,) = journal.entries("t")
    assert only.before == {"segment.ms": None, "segment.bytes": "7"}
    assert only.changes == {"segment.ms": "2", "segment.bytes": "9"}


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    journal = Journal("c", tmp_path)
    journal.append(entry({}, {}))
    journal.path("t").write_text("[{")
    with pytest.raises(StateCorrupt):
        journal.entries("t")


class Answer:
    """A connection that has one answer."""

    address = "nowhere:1"

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[tuple[int, int, bytes]] = []

    def request(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
        self.asked.append((api_key, version, body))
        return self.answer


def log_dirs_answer(error: int = 0) -> bytes:
    partition = struct.pack(">iqqb", 3, 12_345, 0, 0) + struct.pack(">iqqb", 3, 99, 0, 1)
    topic = kafka_string("t") + struct.pack(">i", 2) + partition
    return (
        struct.pack(">ii", 0, 1)
        + struct.pack(">h", error)
        + kafka_string("/data")
        + struct.pack(">i", 1)
        + topic
    )


def test_log_dirs_are_read_and_future_replicas_left_out() -> None:
    connection = Answer(log_dirs_answer())
    sizes = describe_log_dirs(cast(WireConnection, connection), 7, {"t": 4})
    assert sizes == [ReplicaSize(7, TopicPartition("t", 3), 12_345, "/data")]
    api_key, version, body = connection.asked[0]
    assert (api_key, version) == (35, 1)
    assert body == struct.pack(">i", 1) + kafka_string("t") + struct.pack(">5i", 4, 0, 1, 2, 3)


def test_a_refused_log_dir_is_typed() -> None:
    with pytest.raises(BrokerRefused):
        describe_log_dirs(cast(WireConnection, Answer(log_dirs_answer(error=31))), 7, {"t": 4})


def api_versions_answer(level: int) -> bytes:
    name = b"metadata.version"
    features = bytes([2, len(name) + 1]) + name + struct.pack(">hh", 7, level) + b"\x00"
    tagged = bytes([1, 0, len(features)]) + features
    return (
        struct.pack(">h", 0)
        + bytes([2])
        + struct.pack(">hhh", 18, 0, 4)
        + b"\x00"
        + struct.pack(">i", 0)
        + tagged
    )


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (30, ((4, 3), False)),
        (27, ((4, 1), False)),
        (21, ((3, 9), False)),
        (31, ((4, 3), True)),
        (2, ((3, 0), False)),
    ],
)
def test_the_release_follows_from_the_metadata_level(
    level: int, expected: tuple[tuple[int, int], bool]
) -> None:
    assert broker_version(cast(WireConnection, Answer(api_versions_answer(level)))) == expected


def test_restore_rates_are_fitted_from_logs_of_different_sizes() -> None:
    probes = [RestoreProbe(0.2 + records / 100_000, records, 0) for records in (10_000, 20_000, 50_000)]
    rate = fit_rate(probes)
    assert rate.records_per_second == pytest.approx(100_000)
    assert rate.fixed_seconds == pytest.approx(0.2)
    assert rate.records_within(1.2) == pytest.approx(100_000)


def test_a_rate_from_like_sizes_is_the_mean() -> None:
    rate = fit_rate([RestoreProbe(1.0, 1000, 0), RestoreProbe(1.2, 1001, 0)])
    assert rate.fixed_seconds == 0
    assert rate.seconds(1000) == pytest.approx(1.1, rel=0.01)


def test_charts_are_escaped_and_stay_inside() -> None:
    x, y = Axis("seconds", 0, 10), Axis("MB", *span([5.0]))
    chart = line_chart(
        "<b>", [Series("a & b", [(0, 0), (20, 5)]), Series("c", [(1, 1)], 1)], x, y, ("bound", 4.0)
    )
    assert "<b>" not in chart
    assert "a &amp; b" in chart
    points = scatter(
        "s", [Mark("<i>", 3, 3), Mark("j", 3, 3)], Axis("x", 1, 10, True), Axis("y", 1, 10, True)
    )
    assert "&lt;i&gt;" in points
    assert points.count("<circle") == 2


def test_ticks_are_round() -> None:
    assert Axis("x", 0, 50).ticks() == [0, 10, 20, 30, 40, 50]
    assert Axis("x", 0.9, 120, logarithmic=True).ticks() == [1, 10, 100]


def test_how_far_the_cleaner_has_come_is_read_from_its_own_file(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    assert cleaned_offsets([str(first), str(second)]) is None
    (first / FILE_NAME).write_text("0\n2\nt 0 12\nother 3 7\n")
    (second / FILE_NAME).write_text("0\n0\n")
    assert cleaned_offsets([str(first), str(second)]) == {
        TopicPartition("t", 0): 12,
        TopicPartition("other", 3): 7,
    }
    (first / FILE_NAME).write_text("9\nunknown\n")
    assert cleaned_offsets([str(first)]) is None


# --- reading a log --------------------------------------------------------------------------------------------


def commit_one(writer: Writer) -> None:
    writer.begin()
    writer.send("busy", b"k", b"v", partition=0)
    writer.commit()


def test_transactions_are_seen_in_a_log_that_goes_on_growing() -> None:
    """What arrives between looking for the end and reading to it must not hide the marker at that end."""
    cluster, busy = MemoryCluster(), TopicPartition("busy", 0)
    cluster.create([TopicSpec("busy", 1)])
    with closing(cluster.writer("transactional")) as writer:
        commit_one(writer)
        ranges = cluster.ranges([busy])
        commit_one(writer)
        found = scan(cluster, ranges, ScanOptions(), ManualClock(0))
    assert found.markers
    assert found.records == 1, "nothing behind the end is counted"


def test_a_log_without_transactions_has_no_markers() -> None:
    cluster, busy = MemoryCluster(), TopicPartition("busy", 0)
    cluster.create([TopicSpec("busy", 1)])
    with closing(cluster.writer()) as writer:
        commit_one(writer)
        assert not scan(cluster, cluster.ranges([busy]), ScanOptions(), ManualClock(0)).markers
