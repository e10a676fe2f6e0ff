"""Event time over several upstreams: never ahead of the slowest, never backwards, kept beside the offsets."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateflow.changelog.event_time import UNKNOWN_MS, Announced, merged_minimum
from stateflow.changelog.position import BarrierPoint, InputPosition, from_metadata, to_metadata
from stateflow.errors import StateCorrupt
from stateflow.runtime.event_time.watermarks import Port, Watermarks
from tests.unit.changelog.positions import POSITIONS

observations = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**13), st.booleans()), max_size=40)


def ports(upstreams: int) -> list[Port]:
    """One re-key step with so many tasks before it."""
    return [Port("by-key", upstreams, is_source=False)]


def assumed(marks: Watermarks, upstreams: int) -> Watermarks:
    """Other watermarks, from what these record."""
    again = Watermarks(ports(upstreams))
    again.assume(marks.event_time())
    return again


def test_value_is_unknown_until_every_upstream_has_spoken() -> None:
    marks = Watermarks(ports(2))
    assert not marks.observe(0, 500)
    assert marks.value_ms == UNKNOWN_MS
    assert marks.observe(1, 300)
    assert marks.value_ms == 300


def test_a_fast_upstream_does_not_move_the_value() -> None:
    marks = Watermarks(ports(2))
    marks.observe(0, 100)
    marks.observe(1, 100)
    assert not marks.observe(0, 9_000)
    assert marks.value_ms == 100


def test_an_idle_upstream_is_left_out_until_it_speaks_again() -> None:
    marks = Watermarks(ports(2))
    marks.observe(0, 100)
    marks.observe(1, 50)
    assert marks.observe(1, 50, idle=True)
    assert marks.value_ms == 100
    marks.observe(1, 60)
    assert marks.value_ms == 100, "event time never runs backwards"
    marks.observe(0, 500)
    assert marks.value_ms == 100, "the slow one is waited for again"


def test_an_upstream_that_has_ended_counts_until_all_have() -> None:
    marks = Watermarks(ports(2))
    marks.observe(0, 100)
    assert marks.observe(1, 50, ended=True)
    assert (marks.value_ms, marks.all_ended) == (50, False), "another run may bring more of it"
    assert marks.least_of_others_ms(0) == 50
    assert marks.observe(0, 100, ended=True)
    assert (marks.value_ms, marks.all_ended) == (100, True)
    marks.observe(0, 200)
    assert (marks.value_ms, marks.all_ended) == (100, False)


def test_records_at_a_port_that_has_ended_wake_all_of_it() -> None:
    marks = Watermarks([*ports(2), Port("in", 1, is_source=True)])
    for upstream in range(3):
        marks.observe(upstream, 100, ended=True)
    marks.wake(0)
    assert not marks.all_ended
    assert [marks.has_ended(upstream) for upstream in range(3)] == [False, False, True]
    marks.observe(1, 100, ended=True)
    marks.wake(0)
    assert marks.has_ended(1), "upstream 0 is known to be awake: these may be its records"


def test_with_all_idle_the_furthest_counts() -> None:
    marks = Watermarks(ports(2))
    marks.observe(0, 100, idle=True)
    marks.observe(1, 700, idle=True)
    assert marks.value_ms == 700


@given(observations)
def test_the_value_never_falls(steps: list[tuple[int, int, bool]]) -> None:
    marks = Watermarks(ports(4))
    before = marks.value_ms
    for upstream, mark_ms, idle in steps:
        marks.observe(upstream, mark_ms, idle=idle)
        assert marks.value_ms >= before
        before = marks.value_ms


@given(observations)
def test_what_is_recorded_is_assumed_again(steps: list[tuple[int, int, bool]]) -> None:
    marks = Watermarks(ports(4))
    for upstream, mark_ms, idle in steps:
        marks.observe(upstream, mark_ms, idle=idle)
    again = assumed(marks, 4)
    assert again.event_time() == marks.event_time()
    assert again.value_ms == marks.value_ms


@pytest.mark.parametrize("upstreams", [64, 256, 512, 1_000, 4_000])
@pytest.mark.parametrize("spread_ms", [5_000, 90 * 86_400_000])
def test_any_number_of_upstreams_fits_beside_an_offset(upstreams: int, spread_ms: int) -> None:
    draw = random.Random(upstreams)
    marks = Watermarks(ports(upstreams))
    for upstream in range(upstreams):
        marks.observe(upstream, 1_700_000_000_000 + draw.randrange(spread_ms), idle=upstream % 7 == 3)
    metadata = to_metadata(InputPosition(event_time=marks.event_time()))
    assert len(metadata) < 4096
    again = Watermarks(ports(upstreams))
    again.assume(from_metadata(metadata).event_time)
    assert again.value_ms == marks.value_ms
    assert all(again.mark_ms(each) <= marks.mark_ms(each) for each in range(upstreams)), "never ahead"
    assert [again.is_idle(each) for each in range(upstreams)] == [each % 7 == 3 for each in range(upstreams)]


def test_another_number_of_upstreams_begins_at_the_minimum() -> None:
    marks = Watermarks(ports(2))
    marks.observe(0, 100)
    marks.observe(1, 900)
    again = assumed(marks, 3)
    assert again.value_ms == 100
    for upstream in range(3):
        again.observe(upstream, 400)
    assert again.value_ms == 400


def test_event_time_is_that_of_the_slowest_port_that_is_not_idle() -> None:
    marks = Watermarks([Port("a", 1, True), Port("b", 1, True), Port("c", 2, False)])
    marks.observe(marks.upstream(0), 500)
    marks.observe(marks.upstream(2, 0), 700)
    marks.observe(marks.upstream(2, 1), 600)
    assert marks.value_ms == UNKNOWN_MS, "b has not spoken"
    assert marks.observe(marks.upstream(1), UNKNOWN_MS, idle=True)
    assert marks.value_ms == 500
    assert marks.least_of_others_ms(marks.upstream(0)) == 600
    with pytest.raises(IndexError):
        marks.upstream(0, 1)


def test_sources_count_again_after_a_start() -> None:
    marks = Watermarks([Port("a", 1, True), Port("b", 2, False)])
    for upstream in range(3):
        marks.observe(upstream, 100, idle=True)
    marks.wake_sources()
    assert [marks.is_idle(upstream) for upstream in range(3)] == [False, True, True]
    marks.observe(1, 900, idle=True)
    assert marks.value_ms == 100, "the source may have slept for long"


def test_ports_are_found_by_name_again() -> None:
    marks = Watermarks([Port("a", 1, True), Port("b", 1, True)])
    marks.observe(0, 300)
    marks.observe(1, 200)
    again = Watermarks([Port("b", 1, True), Port("c", 1, True), Port("a", 1, True)])
    again.assume(marks.event_time())
    assert [again.mark_ms(upstream) for upstream in range(3)] == [200, UNKNOWN_MS, 300]


def test_merging_takes_the_lowest_of_each() -> None:
    left, right = Watermarks(ports(2)), Watermarks(ports(2))
    for marks, first, second in ((left, 10, 500), (right, 40, 300)):
        marks.observe(0, first)
        marks.observe(1, second)
    merged = Watermarks(ports(2))
    merged.assume(merged_minimum([left.event_time(), right.event_time()]))
    assert merged.value_ms == 10
    merged.observe(0, 350)
    assert merged.value_ms == 300


def test_what_version_0_1_wrote_is_read() -> None:
    replay = json.dumps([7, json.dumps({"v": 1, "at": 5, "base": 5, "d": [0, 0, 0]})])
    said = '"v":1,"at":100,"base":90,"d":[10,null,800],"idle":[2]'
    written = f'{{{said},"replay":{replay},"cut":[3,1]}}'
    position = from_metadata(written)
    marks = Watermarks(ports(3))
    marks.assume(position.event_time)
    assert marks.value_ms == 100
    assert [marks.mark_ms(upstream) for upstream in range(3)] == [100, UNKNOWN_MS, 890]
    assert marks.is_idle(2)
    assert position.barrier_point == BarrierPoint(3, is_last_commit=True)
    assert position.replay_from is not None
    assert (position.replay_from.offset_next, position.replay_from.event_time.reached_ms) == (7, 5)


@pytest.mark.parametrize("metadata", ["written by someone else", "sf2:AAAA", "sf2:%", '{"v":2}', "[]", "{}"])
def test_foreign_metadata_is_refused_with_what_to_do(metadata: str) -> None:
    with pytest.raises(StateCorrupt, match="stateflow reset"):
        from_metadata(metadata)


@given(POSITIONS)
def test_positions_are_read_back(position: InputPosition) -> None:
    assert InputPosition.decode(position.encode()) == position
    beside = from_metadata(to_metadata(position))
    assert (beside.replay_from, beside.barrier_point) == (position.replay_from, position.barrier_point)


def test_record_round_trip_and_refusal() -> None:
    announced = Announced(7, 1_700_000_000_123, idle=True)
    assert Announced.decode(announced.encode()) == announced
    with pytest.raises(StateCorrupt):
        Announced.decode(b"short")


class Brute:
    """The same by looking at every upstream each time."""

    def __init__(self, upstreams: int) -> None:
        self.marks = [UNKNOWN_MS] * upstreams
        self.idle: set[int] = set()
        self.ended: set[int] = set()
        self.value = UNKNOWN_MS

    def observe(self, upstream: int, mark_ms: int, *, idle: bool, ended: bool) -> bool:
        self.marks[upstream] = max(self.marks[upstream], mark_ms)
        for members, is_member in ((self.idle, idle), (self.ended, ended)):
            (members.add if is_member else members.discard)(upstream)
        awake = [mark for index, mark in enumerate(self.marks) if index not in self.idle]
        is_over = not awake or len(self.ended) == len(self.marks)
        before, self.value = self.value, max(self.value, max(self.marks) if is_over else min(awake))
        return self.value > before


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(-1, 6), st.booleans(), st.booleans(), st.integers(0, 9)),
        max_size=60,
    )
)
def test_many_upstreams_are_not_looked_at_each_time(
    steps: list[tuple[int, int, bool, bool, int]],
) -> None:
    """Three tasks before a re-key step, and a source topic: the fourth upstream."""
    both = [*ports(3), Port("in", 1, is_source=True)]
    marks, brute = Watermarks(both), Brute(4)
    for upstream, mark_ms, idle, ended, also in steps:
        assert marks.observe(upstream, mark_ms, idle=idle, ended=ended) == brute.observe(
            upstream, mark_ms, idle=idle, ended=ended
        )
        assert marks.value_ms == brute.value
        if also == 0:
            recorded = marks.event_time()
            marks = Watermarks(both)
            marks.assume(recorded)
        elif also == 1:
            marks.wake_sources()
            brute.idle.discard(3)
            brute.ended.discard(3)
        elif also == 2:
            marks.wake(0)
            if brute.ended >= {0, 1, 2}:
                brute.ended -= {0, 1, 2}
