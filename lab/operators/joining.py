"""Tables, what is computed of them, and every join."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row, within_grace
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output

_BEFORE_MS, _AFTER_MS, _GRACE_MS = 2_000, 5_000, 3_000
_LATE_MS = 6_000
Results = Iterable[tuple[Any, Any]]


def table_verbs() -> list[Verb]:
    """All of them."""
    hows = ("inner", "left", "outer")
    return [
        Verb("table, filter, map", _table, _table_results, has_tombstones=True),
        Verb("table changes", _changes, _changes_results, has_tombstones=True),
        Verb("to_table, to_stream", _kept, _kept_results),
        Verb("table group_by, aggregate", _regrouped, _regrouped_results, has_tombstones=True),
        Verb("table group_by, count", _counted, _counted_results, has_tombstones=True),
        *(_streams(how) for how in hows),
        *(_stream_with_table(how) for how in hows[:2]),
        *(_as_of(how) for how in hows[:2]),
        *(_with_global(how) for how in hows[:2]),
        *(_at_once(how) for how in hows[:2]),
        *(_with_static(how) for how in hows[:2]),
        *(_tables(how) for how in hows),
        *(_foreign(how) for how in hows[:2]),
        Verb("table joined with one made of it", _self_joined, _self_results, has_tombstones=True),
    ]


def last_of(rows: Sequence[Row], side: str = "left") -> dict[str, int]:
    """A table in the end."""
    table: dict[str, int] = {}
    for row in rows:
        if row.side == side and row.value is None:
            table.pop(row.key, None)
        elif row.side == side:
            table[row.key] = row.given
    return table


def pair(left: int | None, right: int | None) -> str:
    """Two values as one."""
    return f"{left}+{right}"


# --- tables ---------------------------------------------------------------------------------------------


def _is_small(value: int) -> bool:
    return value < 60


def _table(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, str)
    inputs.table().filter(_is_small).map(str).to(topic)
    return topic, "newest"


def _table_results(rows: Sequence[Row]) -> Results:
    return [(key, str(value)) for key, value in last_of(rows).items() if value < 60]


def _changes(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, str)
    inputs.table().changes().map(lambda change: pair(change.old, change.new), value=str).to(topic)
    return topic, "all"


def _changes_results(rows: Sequence[Row]) -> Results:
    table: dict[str, int] = {}
    for row in rows:
        old = table.get(row.key)
        if row.value is None:
            table.pop(row.key, None)
        else:
            table[row.key] = row.value
        if old is not None or row.value is not None:
            yield row.key, pair(old, row.value)


def _kept(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().to_table(name="kept").to_stream().to(topic)
    return topic, "all"


def _kept_results(rows: Sequence[Row]) -> Results:
    return [(row.key, row.given) for row in rows]


def _group(value: int) -> str:
    return f"group {value % 3}"


def _regrouped(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    groups = inputs.table().group_by(_group, name="groups")
    groups.aggregate(
        initial=0,
        add=lambda total, value: total + value,
        remove=lambda total, value: total - value,
        name="sums",
    ).to(topic)
    return topic, "newest"


def _regrouped_results(rows: Sequence[Row]) -> Results:
    sums = dict.fromkeys((_group(row.value) for row in rows if row.value is not None), 0)
    for value in last_of(rows).values():
        sums[_group(value)] += value
    return sums.items()


def _counted(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.table().group_by(_group, name="groups").count(name="counts").to(topic)
    return topic, "newest"


def _counted_results(rows: Sequence[Row]) -> Results:
    counts: dict[str, int] = defaultdict(int)
    for value in last_of(rows).values():
        counts[_group(value)] += 1
    return counts.items()


# --- joins ----------------------------------------------------------------------------------------------


Joined = tuple[str, int | None, int | None, int]
"""Key, values of both sides, time."""


def joined_rows(rows: Sequence[Row], before_ms: int, after_ms: int, how: str) -> Iterator[Joined]:
    """Each pair of rows within the interval, and those without a partner that ``how`` says."""
    lefts, rights = ([row for row in rows if row.side == side] for side in ("left", "right"))
    met: set[int] = set()
    for left in lefts:
        for right in rights:
            apart_ms = right.timestamp_ms - left.timestamp_ms
            if left.key == right.key and -before_ms <= apart_ms <= after_ms:
                met |= {left.number, right.number}
                yield left.key, left.value, right.value, max(left.timestamp_ms, right.timestamp_ms)
    for row in rows:
        if row.number in met:
            continue
        if row.side == "left" and how in ("left", "outer"):
            yield row.key, row.value, None, row.timestamp_ms
        elif row.side == "right" and how == "outer":
            yield row.key, None, row.value, row.timestamp_ms


def _streams(how: str) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs, str)
        left, right = inputs.app.stream(inputs.left), inputs.app.stream(inputs.right)
        verbs: dict[str, Callable[..., sf.Stream[str, str]]] = {
            "inner": left.join,
            "left": left.left_join,
            "outer": left.outer_join,
        }
        spans = (timedelta(milliseconds=each) for each in (_BEFORE_MS, _AFTER_MS, _GRACE_MS))
        before, after, grace = spans
        within = sf.Within(before=before, after=after, grace=grace)
        verbs[how](right, pair, name="joined", within=within).to(topic)
        return topic, "all"

    def expected(rows: Sequence[Row]) -> Results:
        joined = joined_rows(within_grace(rows, _GRACE_MS), _BEFORE_MS, _AFTER_MS, how)
        return [(key, pair(left, right)) for key, left, right, _ in joined]

    return Verb(f"{how} join of streams", build, expected, sides=2, late_ms=_LATE_MS)


def _stream_with_table(how: str) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic, left, table = output(inputs, str), inputs.app.stream(inputs.left), inputs.table("right")
        verb: Callable[..., sf.Stream[str, str]] = left.join if how == "inner" else left.left_join
        verb(table, pair, name="joined").to(topic)
        return topic, "all"

    def expected(rows: Sequence[Row]) -> Results:
        table: dict[str, int | None] = {}
        for row in rows:
            if row.side == "right":
                table[row.key] = row.value
            elif row.value is not None and (how == "left" or table.get(row.key) is not None):
                yield row.key, pair(row.value, table.get(row.key))

    name = f"{how} join of a stream with a table"
    return Verb(name, build, expected, sides=2, is_by_order=True, has_tombstones=True)


def _with_global(how: str) -> Verb:
    """The right topic is the table; the left one's values name the keys."""

    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic = output(inputs, str)
        stream, table = inputs.stream(), inputs.app.global_table(inputs.right, name="whole")
        join: Any = stream.join if how == "inner" else stream.left_join
        join(table, pair, name="pairs", by=_key_named, value=str).to(topic)
        return topic, "all"

    def expected(rows: Sequence[Row]) -> Results:
        table: dict[str, int | None] = {}
        for row in rows:
            if row.side == "right":
                table[row.key] = row.value
            elif row.value is not None:
                found = table.get(_key_named(row.value))
                if found is not None or how == "left":
                    yield row.key, pair(row.value, found)

    name = f"{how} join with a global table"
    return Verb(name, build, expected, sides=2, is_by_order=True, has_tombstones=True)


def _key_named(value: int) -> str:
    return "abcde"[value % 5]


_STATIC = {number: 7 * number for number in range(0, 10, 2)}


def _with_static(how: str) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic, stream = output(inputs, str), inputs.stream()
        table = inputs.app.static_table(_STATIC, name="static")
        join: Any = stream.join if how == "inner" else stream.left_join
        join(table, pair, name="pairs", by=lambda value: value % 10, value=str).to(topic)
        return topic, "all"

    def expected(rows: Sequence[Row]) -> Results:
        found = [(row.key, row.given, _STATIC.get(row.given % 10)) for row in rows]
        return [(key, pair(left, right)) for key, left, right in found if right is not None or how == "left"]

    return Verb(f"{how} join with a static table", build, expected)


def _at_once(how: str) -> Verb:
    """What a versioned table held at a record's time, as far as it is known when the record comes."""

    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic, left = output(inputs, str), inputs.app.stream(inputs.left)
        table = inputs.table("right", history=timedelta(hours=1))
        verb: Callable[..., sf.Stream[str, str]] = left.join if how == "inner" else left.left_join
        verb(table, pair, name="joined").to(topic)
        return topic, "all"

    def expected(rows: Sequence[Row]) -> Results:
        versions: dict[str, dict[int, int | None]] = defaultdict(dict)
        for row in rows:
            held = versions[row.key]
            if row.side == "right":
                held[row.timestamp_ms] = row.value
            elif row.value is not None:
                then_ms = max((at_ms for at_ms in held if at_ms <= row.timestamp_ms), default=None)
                found = None if then_ms is None else held[then_ms]
                if how == "left" or found is not None:
                    yield row.key, pair(row.value, found)

    name = f"{how} join with a versioned table at once"
    return Verb(name, build, expected, sides=2, is_by_order=True, has_tombstones=True, late_ms=_GRACE_MS)


def _as_of(how: str) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic, left = output(inputs, str), inputs.app.stream(inputs.left)
        table = inputs.table("right", history=timedelta(hours=1))
        verb: Callable[..., sf.Stream[str, str]] = left.join if how == "inner" else left.left_join
        verb(table, pair, name="joined", grace=timedelta(milliseconds=_GRACE_MS)).to(topic)
        return topic, "all"

    def expected(rows: Sequence[Row]) -> Results:
        for row in rows:
            if row.side == "left":
                versions = [
                    (other.timestamp_ms, other.number, other.value)
                    for other in rows
                    if other.side == "right"
                    and other.key == row.key
                    and other.timestamp_ms <= row.timestamp_ms
                ]
                value = max(versions)[2] if versions else None
                if how == "left" or value is not None:
                    yield row.key, pair(row.value, value)

    name = f"{how} join with a table as of then"
    return Verb(name, build, expected, sides=2, late_ms=_GRACE_MS)


def _tables(how: str) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic, left, right = output(inputs, str), inputs.table("left"), inputs.table("right")
        verbs: dict[str, Callable[..., sf.Table[str, str]]] = {
            "inner": left.join,
            "left": left.left_join,
            "outer": left.outer_join,
        }
        verbs[how](right, pair, name="joined").to(topic)
        return topic, "newest"

    def expected(rows: Sequence[Row]) -> Results:
        left, right = last_of(rows), last_of(rows, "right")
        keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}
        return [(key, pair(left.get(key), right.get(key))) for key in keys[how]]

    return Verb(f"{how} join of tables", build, expected, sides=2, has_tombstones=True)


def _named(value: int) -> str | None:
    """The foreign key in a value: one of those of the logs, or none."""
    return None if value % 7 == 0 else "abcde"[value % 5]


def _foreign(how: str) -> Verb:
    def build(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
        topic, left, right = output(inputs, str), inputs.table("left"), inputs.table("right")
        verb: Callable[..., sf.Table[str, str]] = (
            left.foreign_join if how == "inner" else left.left_foreign_join
        )
        verb(right, _named, pair, name="joined").to(topic)
        return topic, "newest"

    def expected(rows: Sequence[Row]) -> Results:
        left, right = last_of(rows), last_of(rows, "right")
        for key, value in left.items():
            partner = right.get(_named(value) or "")
            if how == "left" or partner is not None:
                yield key, pair(value, partner)

    return Verb(f"{how} foreign-key join of tables", build, expected, sides=2, has_tombstones=True)


def _negative(value: int) -> int:
    return -value


def _self_joined(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic, table = output(inputs, str), inputs.table()
    table.join(table.map(_negative), pair, name="joined").to(topic)
    return topic, "newest"


def _self_results(rows: Sequence[Row]) -> Results:
    return [(key, pair(value, -value)) for key, value in last_of(rows).items()]
