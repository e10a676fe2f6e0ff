"""Verbs behind verbs, where what one lets go must not be late, early or out of order for the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.joining import joined_rows, last_of, pair
from stateflow.lab.operators.logs import SECOND_MS, Row, marked, within_grace
from stateflow.lab.operators.verb import Inputs, Rule, Verb, keyed, output

_SMALL_MS, _LARGE_MS, _GRACE_MS, _LATE_MS = 5 * SECOND_MS, 15 * SECOND_MS, 3_000, 6_000
_BEFORE_MS, _AFTER_MS, _PAUSE_MS = 2_000, 4_000, 1_500
Results = Iterable[tuple[Any, Any]]


def chain_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("inputs in order", _inputs_in_order(None), _ordered_results(None), sides=2),
        Verb("inputs in order, tie-break", _inputs_in_order(_rank), _ordered_results(_rank), sides=2),
        Verb("inputs in order behind a grace", _sorted_inputs, _sorted_results, sides=2, late_ms=_LATE_MS),
        Verb("join of streams in order", _sorted_join, _sorted_join_results, sides=2, late_ms=_LATE_MS),
        Verb("windows of a join", _join_windows, _join_windows_results, sides=2),
        Verb("windows of windows", _windows_twice, _windows_twice_results, late_ms=_LATE_MS),
        Verb("several topics in one stream", _topics, _sums, sides=2),
        Verb("merge behind re-key steps", _merged, _sums, sides=2),
        Verb("table of a join, regrouped", _regrouped, _regrouped_results, sides=2, has_tombstones=True),
        Verb(
            "table of tables, reduced",
            _reduced,
            _reduced_results,
            sides=2,
            has_tombstones=True,
            is_by_order=True,
        ),
    ]


# --- several inputs in one order ------------------------------------------------------------------------


class Both(sf.Operator[str, int, int]):
    """A number that depends on all values, on which input each came by, on their order and on pauses between them."""

    number: sf.Value[int] = sf.state(default=1)

    def on_left(self, value: int, ctx: sf.Context[int]) -> None:
        """One more of the left."""
        self._next(3 * self.number.get() + value, ctx)

    def on_right(self, value: int, ctx: sf.Context[int]) -> None:
        """One more of the right."""
        self._next(7 * self.number.get() - value, ctx)

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - it has but one
        """Nothing has come for a while."""
        self.number.set((5 * self.number.get() + 1) % 10_007)

    def _next(self, number: int, ctx: sf.Context[int]) -> None:
        self.number.set(number % 10_007)
        ctx.emit(self.number.get())
        ctx.timer("pause", after=timedelta(milliseconds=_PAUSE_MS))


def _rank(value: int) -> int:
    return value % 10


def _inputs_in_order(tie_break: Callable[[int], Any] | None) -> Any:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs)
        left, right = inputs.stream(), inputs.app.stream(inputs.right)
        ports = (
            sf.port(left, Both.on_left, tie_break=tie_break),
            sf.port(right, Both.on_right, tie_break=tie_break),
        )
        inputs.app.process(Both, *ports, name="both", order="event-time").to(topic)
        return topic, "all"

    return build


def _ordered_results(tie_break: Callable[[int], Any] | None) -> Any:
    def expected(rows: Sequence[Row]) -> Results:
        def rank(row: Row) -> Any:
            tied = 0 if tie_break is None else tie_break(row.given)
            return row.timestamp_ms, tied, row.side, row.number

        return _both(sorted(rows, key=rank))

    return expected


def _both(rows: Iterable[Row]) -> Results:
    numbers: dict[str, int] = defaultdict(lambda: 1)
    before_ms: dict[str, int] = {}
    for row in rows:
        number = numbers[row.key]
        if row.key in before_ms and before_ms[row.key] + _PAUSE_MS <= row.timestamp_ms:
            number = (5 * number + 1) % 10_007
        number = 3 * number + row.given if row.side == "left" else 7 * number - row.given
        numbers[row.key], before_ms[row.key] = number % 10_007, row.timestamp_ms
        yield row.key, number % 10_007


def _sorted(inputs: Inputs) -> tuple[sf.Stream[str, int], sf.Stream[str, int]]:
    grace = timedelta(milliseconds=_GRACE_MS)
    left, right = inputs.stream(), inputs.stream("right")
    return left.in_order(name="lefts", grace=grace), right.in_order(name="rights", grace=grace)


def _sorted_inputs(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    left, right = _sorted(inputs)
    ports = sf.port(left, Both.on_left), sf.port(right, Both.on_right)
    inputs.app.process(Both, *ports, name="both", order="event-time").to(topic)
    return topic, "all"


def _sorted_results(rows: Sequence[Row]) -> Results:
    kept = within_grace(rows, _GRACE_MS)
    return _both(sorted(kept, key=lambda row: (row.timestamp_ms, row.side, row.number)))


# --- joins behind what waits, and windows behind joins --------------------------------------------------


def _within() -> sf.Within:
    spans = (timedelta(milliseconds=each) for each in (_BEFORE_MS, _AFTER_MS))
    before, after = spans
    return sf.Within(before=before, after=after)


def _sorted_join(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, str)
    left, right = _sorted(inputs)
    left.outer_join(right, pair, name="joined", within=_within()).to(topic)
    return topic, "all"


def _sorted_join_results(rows: Sequence[Row]) -> Results:
    kept = within_grace(rows, _GRACE_MS)
    joined = joined_rows(kept, _BEFORE_MS, _AFTER_MS, "outer")
    return [(key, pair(left, right)) for key, left, right, _ in joined]


def _one(_left: int, _right: int) -> int:
    return 1


def _join_windows(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, key=sf.WindowedKey(sf.String, _LARGE_MS))
    left, right = inputs.stream(), inputs.stream("right")
    joined = left.join(right, _one, name="joined", within=_within())
    joined.window(sf.Tumbling(timedelta(milliseconds=_LARGE_MS)), emit="on_close").sum(name="pairs").to(topic)
    return topic, "all"


def _join_windows_results(rows: Sequence[Row]) -> Results:
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for key, _, _, at_ms in joined_rows(rows, _BEFORE_MS, _AFTER_MS, "inner"):
        counts[key, at_ms // _LARGE_MS * _LARGE_MS] += 1
    return [(sf.Windowed(key, start, start + _LARGE_MS), count) for (key, start), count in counts.items()]


def _windows_twice(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, key=sf.WindowedKey(sf.String, _LARGE_MS))
    grace = timedelta(milliseconds=_GRACE_MS)
    small = sf.Tumbling(timedelta(milliseconds=_SMALL_MS), grace=grace)
    most = inputs.stream().window(small, emit="on_close").max(name="most")
    again = most.key_by(lambda value: f"rest {value % 3}", name="rests", key=str, value=int)
    again.window(sf.Tumbling(timedelta(milliseconds=_LARGE_MS)), emit="on_close").sum(name="sums").to(topic)
    return topic, "all"


def _windows_twice_results(rows: Sequence[Row]) -> Results:
    most: dict[tuple[str, int], int] = {}
    for row, mark_ms in marked(rows):
        start_ms = row.timestamp_ms // _SMALL_MS * _SMALL_MS
        if start_ms + _SMALL_MS + _GRACE_MS > mark_ms:
            most[row.key, start_ms] = max(most.get((row.key, start_ms), 0), row.given)
    sums: dict[tuple[str, int], int] = defaultdict(int)
    for (_, start_ms), value in most.items():
        sums[f"rest {value % 3}", start_ms // _LARGE_MS * _LARGE_MS] += value
    return [(sf.Windowed(key, start, start + _LARGE_MS), total) for (key, start), total in sums.items()]


# --- several topics, and tables of tables ---------------------------------------------------------------


def _topics(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    both = inputs.app.stream(inputs.left, inputs.right).map_pairs(keyed, value=sf.MsgPack)
    again = both.key_by(lambda one: str(one[0]), name="again", key=str)
    again.map(lambda one: int(one[1]), value=int).sum(name="sums").to(topic)
    return topic, "newest"


def _merged(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().merge(inputs.stream("right")).sum(name="sums").to(topic)
    return topic, "newest"


def _sums(rows: Sequence[Row]) -> Results:
    sums: dict[str, int] = defaultdict(int)
    for row in rows:
        sums[row.key] += row.given
    return sums.items()


def _total(left: int, right: int | None) -> int:
    return left + (right or 0)


def _is_odd(value: int) -> bool:
    return value % 2 == 1


def _group(value: int) -> str:
    return f"group {value % 3}"


def _regrouped(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    joined = inputs.table().left_join(inputs.table("right"), _total, name="joined").filter(_is_odd)
    joined.group_by(_group, name="groups").count(name="counts").to(topic)
    return topic, "newest"


def _totals(rows: Sequence[Row]) -> dict[str, int]:
    left, right = last_of(rows), last_of(rows, "right")
    return {key: value + right.get(key, 0) for key, value in left.items()}


def _regrouped_results(rows: Sequence[Row]) -> Results:
    counts: dict[str, int] = defaultdict(int)
    for value in filter(_is_odd, _totals(rows).values()):
        counts[_group(value)] += 1
    return counts.items()


def _reduced(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    joined = inputs.table().left_join(inputs.table("right"), _total, name="joined")
    groups = joined.group_by(_group, name="groups")
    groups.reduce(lambda one, two: one + two, lambda one, two: one - two, name="sums").to(topic)
    return topic, "newest"


def _reduced_results(rows: Sequence[Row]) -> Results:
    """Groups that have been emptied by subtraction stay, at nothing: all that ever were are there."""
    groups = {_group(value) for end in range(1, len(rows) + 1) for value in _totals(rows[:end]).values()}
    sums = dict.fromkeys(groups, 0)
    for value in _totals(rows).values():
        sums[_group(value)] += value
    return sums.items()
