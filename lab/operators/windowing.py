"""Windows of every kind, told when they close, when they change, and between; and what is late for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import stateflow as sf
from stateflow.calendar_spans import CalendarUnit
from stateflow.lab.operators.logs import SECOND_MS, Row, marked, within_grace
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output

_SIZE_MS, _ADVANCE_MS, _GRACE_MS, _GAP_MS = 10 * SECOND_MS, 4 * SECOND_MS, 2 * SECOND_MS, 2_500
_OFFSET_MS = 3 * SECOND_MS
_ZONE = "Europe/Berlin"
_PACES: dict[CalendarUnit, int] = {"day": 3_600, "week": 20_000, "month": 60_000}
"""How far the records of a log must be apart so that it has some of them in it."""
_LATE_MS = 8 * SECOND_MS
_EMISSIONS: dict[str, Any] = {
    "on close": "on_close",
    "on update": "on_update",
    "at intervals": sf.Every(timedelta(milliseconds=1_500)),
    "after a time": sf.TimeLimit(timedelta(milliseconds=900), max_records=4),
    "on close within bounds": sf.OnClose(max_records=10_000),
}
_PLAIN = ("on close", "on update")
Spans = Iterator[tuple[str, int, int, list[int]]]
"""Key, start, end and values of each window."""


def window_verbs() -> list[Verb]:
    """All of them."""
    found = [_verb(kind, when) for kind in _kinds() for when in _EMISSIONS]
    found += [_verb(kind, when, "max") for kind in _kinds()[:4] for when in _PLAIN]
    found += [_verb(kind, when, "fold") for kind in _kinds()[:2] for when in _PLAIN]
    late = Verb("late records of windows", _late, _late_results, late_ms=_LATE_MS)
    eventual = Verb("tumbling, eventual changelog", _eventual, _eventual_results, late_ms=_LATE_MS)
    counted = map(_counted, ("on close", "on update", "at intervals"))
    return [*found, late, eventual, *counted]


class _Kind(NamedTuple):
    name: str
    window: Any
    key: Any
    spans: Callable[[Sequence[Row]], Spans]
    pace: int = 1


def _kinds() -> list[_Kind]:
    size, advance, grace, offset = map(_ms, (_SIZE_MS, _ADVANCE_MS, _GRACE_MS, _OFFSET_MS))
    sliding = sf.WindowedKey(sf.String, _GAP_MS)
    return [
        _Kind("tumbling", sf.Tumbling(size, grace=grace, offset=offset), _fixed(), _tumbling),
        _Kind("hopping", sf.Hopping(size, advance, grace=grace), _fixed(), _hopping),
        _Kind("session", sf.Session(_ms(_GAP_MS), grace=grace), sf.SessionKey(sf.String), _sessions),
        _Kind("sliding", sf.Sliding(_ms(_GAP_MS), grace=grace), sliding, _sliding),
        _Kind(
            "hopping, offset",
            sf.Hopping(size, advance, grace=grace, offset=offset),
            _fixed(),
            partial(_hopping, offset_ms=_OFFSET_MS),
        ),
        *map(_calendar, _PACES),
    ]


def _calendar(unit: CalendarUnit) -> _Kind:
    pace = _PACES[unit]
    window = sf.Calendar(unit, _ZONE, grace=_ms(pace * _GRACE_MS))
    spans = partial(_calendar_spans, unit, pace * _GRACE_MS)
    return _Kind(f"calendar {unit}", window, sf.CalendarKey(sf.String, unit, _ZONE), spans, pace)


def _ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


def _fixed() -> Any:
    return sf.WindowedKey(sf.String, _SIZE_MS)


_AGGREGATES: dict[str, tuple[Callable[[], Any], Callable[[list[int]], int]]] = {
    "sum": (sf.sum, sum),
    "max": (lambda: sf.max(type=int), max),
    "fold": (
        lambda: sf.fold(7, lambda one, two: (3 * one + two) % 1_009, type=int),
        lambda values: reduce(lambda one, two: (3 * one + two) % 1_009, values, 7),
    ),
}
"""One that can be taken back, one that cannot, and one in which the order shows."""


def _verb(kind: _Kind, when: str, aggregate: str = "sum") -> Verb:
    make, of = _AGGREGATES[aggregate]

    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs, sf.Json, kind.key)
        inputs.stream().window(kind.window, emit=_EMISSIONS[when]).aggregate(make(), name="kept").to(topic)
        return topic, _rule(when)

    def expected(rows: Sequence[Row]) -> Iterable[tuple[Any, Any]]:
        return [(sf.Windowed(key, start, end), of(values)) for key, start, end, values in kind.spans(rows)]

    name = f"{kind.name}, {when}" + (f", {aggregate}" if aggregate != "sum" else "")
    return Verb(name, build, expected, late_ms=kind.pace * _LATE_MS, pace=kind.pace)


def _rule(when: str) -> Rule:
    return "all" if when.startswith("on close") else "newest"


def _in_fixed(rows: Sequence[Row], size_ms: int, starts: Callable[[int], Iterable[int]]) -> Spans:
    """Windows of one size: a row counts in those of its windows that its mark has not closed."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row, mark_ms in marked(rows):
        for start_ms in starts(row.timestamp_ms):
            if start_ms + size_ms + _GRACE_MS > mark_ms:
                windows[row.key, start_ms].append(row.given)
    for (key, start_ms), values in windows.items():
        yield key, start_ms, start_ms + size_ms, values


def _tumbling_start(at_ms: int) -> int:
    return (at_ms - _OFFSET_MS) // _SIZE_MS * _SIZE_MS + _OFFSET_MS


def _tumbling(rows: Sequence[Row]) -> Spans:
    return _in_fixed(rows, _SIZE_MS, lambda at_ms: [_tumbling_start(at_ms)])


def _hopping(rows: Sequence[Row], offset_ms: int = 0) -> Spans:
    def starts(at_ms: int) -> Iterable[int]:
        newest = (at_ms - offset_ms) // _ADVANCE_MS * _ADVANCE_MS + offset_ms
        return (start for start in range(newest, at_ms - _SIZE_MS, -_ADVANCE_MS))

    return _in_fixed(rows, _SIZE_MS, starts)


def _by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.timestamp_ms):
        found[row.key].append(row)
    return found


def _sessions(rows: Sequence[Row]) -> Spans:
    for key, of_key in _by_key(within_grace(rows, _GRACE_MS)).items():
        session: list[Row] = []
        for row in of_key:
            if session and row.timestamp_ms - session[-1].timestamp_ms > _GAP_MS:
                yield _session(key, session)
                session = []
            session.append(row)
        yield _session(key, session)


def _session(key: str, rows: list[Row]) -> tuple[str, int, int, list[int]]:
    return key, rows[0].timestamp_ms, rows[-1].timestamp_ms, [row.given for row in rows]


def _sliding(rows: Sequence[Row]) -> Spans:
    for key, of_key in _by_key(within_grace(rows, _GRACE_MS)).items():
        times_ms = {row.timestamp_ms for row in of_key}
        starts = {at_ms - _GAP_MS for at_ms in times_ms} | {at_ms + 1 for at_ms in times_ms}
        for start_ms in starts:
            end_ms = start_ms + _GAP_MS
            values = [row.given for row in of_key if start_ms <= row.timestamp_ms <= end_ms]
            if values:
                yield key, start_ms, end_ms, values


def _calendar_spans(unit: CalendarUnit, grace_ms: int, rows: Sequence[Row]) -> Spans:
    zone = ZoneInfo(_ZONE)
    windows: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for row, mark_ms in marked(rows):
        local = datetime.fromtimestamp(row.timestamp_ms / 1000, UTC).astimezone(zone)
        first, after = _span(unit, local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0))
        start_ms, end_ms = round(first.timestamp() * 1000), round(after.timestamp() * 1000)
        if end_ms + grace_ms > mark_ms:
            windows[row.key, start_ms, end_ms].append(row.given)
    for (key, start_ms, end_ms), values in windows.items():
        yield key, start_ms, end_ms, values


def _span(unit: CalendarUnit, midnight: datetime) -> tuple[datetime, datetime]:
    """First and next midnight by the clocks of the zone."""
    if unit == "day":
        return midnight, midnight + timedelta(days=1)
    if unit == "week":
        monday = midnight - timedelta(days=midnight.weekday())
        return monday, monday + timedelta(days=7)
    first = midnight.replace(day=1)
    return first, (first + timedelta(days=31)).replace(day=1)


def _late(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    windows = inputs.stream().window(sf.Tumbling(_ms(_SIZE_MS), grace=_ms(_GRACE_MS), offset=_ms(_OFFSET_MS)))
    windows.late().to(topic)
    return topic, "all"


def _late_results(rows: Sequence[Row]) -> Iterable[tuple[Any, Any]]:
    for row, mark_ms in marked(rows):
        if _tumbling_start(row.timestamp_ms) + _SIZE_MS + _GRACE_MS <= mark_ms:
            yield row.key, row.given


def _eventual(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, sf.Json, _fixed())
    window = sf.Tumbling(_ms(_SIZE_MS), grace=_ms(_GRACE_MS), offset=_ms(_OFFSET_MS))
    windows = inputs.stream().window(window, emit="on_close", changelog=sf.Eventual(intensity=0.3))
    windows.sum(name="sums").to(topic)
    return topic, "all"


def _eventual_results(rows: Sequence[Row]) -> Iterable[tuple[Any, Any]]:
    return [(sf.Windowed(key, start, end), sum(values)) for key, start, end, values in _tumbling(rows)]


def _counted(when: str) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs, sf.Json, sf.CountedKey(sf.String, 4))
        inputs.stream().window(sf.CountWindow(4, 3), emit=_EMISSIONS[when]).sum(name="sums").to(topic)
        return topic, _rule(when)

    def expected(rows: Sequence[Row]) -> Iterable[tuple[Any, Any]]:
        values: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            values[row.key].append(row.given)
        for key, of_key in values.items():
            last = len(of_key) - 3 if when == "on close" else len(of_key)
            for first in range(0, last, 3):
                yield sf.Counted(key, first, first + 4), sum(of_key[first : first + 4])

    return Verb(f"windows of records, {when}", build, expected)
