"""Hypothesis strategies for input positions."""

from hypothesis import strategies as st

from stateflow.changelog.event_time import EventTime, PortTime
from stateflow.changelog.position import BarrierPoint, InputPosition, Moment
from stateflow.record import TopicPartition

COUNTS = st.integers(0, 2**63 - 1)
MARKS_MS = st.integers(-1, 2**40)


@st.composite
def ports(draw: st.DrawFn) -> PortTime:
    """A port's watermarks, some of them idle or ended."""
    marks = draw(st.lists(MARKS_MS, max_size=12))
    numbers = st.frozensets(st.integers(0, len(marks) - 1)) if marks else st.just(frozenset())
    return PortTime(draw(st.text(max_size=20)), tuple(marks), draw(numbers), draw(numbers))


EVENT_TIMES = st.builds(EventTime, MARKS_MS, st.lists(ports(), max_size=3).map(tuple))
POSITIONS = st.builds(
    InputPosition,
    st.dictionaries(
        st.builds(TopicPartition, st.text(max_size=40), st.integers(0, 2**31 - 1)), COUNTS, max_size=4
    ),
    EVENT_TIMES,
    st.none() | st.builds(Moment, COUNTS, EVENT_TIMES),
    st.none() | st.builds(BarrierPoint, COUNTS, st.booleans()),
    st.lists(MARKS_MS, max_size=4).map(tuple),
    st.booleans(),
)
