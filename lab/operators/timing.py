"""Timers that carry something, are listed and cancelled; rounds over all keys. Behind an order, so that logs decide."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import SECOND_MS, Row
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output

_TICK_MS = 5_000
Results = Iterable[tuple[Any, Any]]


def timing_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("timers with payloads", _reminders, _reminders_results),
        Verb("rounds", _rounds, _rounds_results),
        Verb("suppress", _suppressed, _suppressed_results),
        Verb("suppress until a time limit", _limited, _limited_results),
        Verb("suppress within bounds", _bounded, _newest_results),
    ]


class Reminders(sf.Operator[str, int, int]):
    """Keeps all that it knows in the payloads of its timers; every fourth value cancels those of odd ones."""

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        """Cancel some, or set one more."""
        pending = ctx.timers()
        if value % 4 == 0:
            for timer in pending:
                if timer.payload[0] % 2:
                    ctx.cancel_timer(timer.name)
        else:
            ctx.timer(_name(value), after=timedelta(seconds=_seconds(value)), payload=[value, len(pending)])

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - the payload says it
        """Tell what it was, and how many there were before it."""
        value, others = ctx.payload
        ctx.emit(100 * value + others)


def _name(value: int) -> str:
    return f"timer {value % 10}"


def _seconds(value: int) -> int:
    return value % 7 + 1


def _reminders(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(Reminders, name="remind", order="event-time").to(topic)
    return topic, "all"


def _reminders_results(rows: Sequence[Row]) -> Results:
    pending: dict[str, dict[str, tuple[int, int, int]]] = defaultdict(dict)
    for row in _by_time(rows):
        of_key = pending[row.key]
        yield from _fired(row.key, of_key, row.timestamp_ms)
        if row.given % 4 == 0:
            for name in [name for name, (_, value, _) in of_key.items() if value % 2]:
                del of_key[name]
        else:
            due_ms = row.timestamp_ms + _seconds(row.given) * SECOND_MS
            of_key[_name(row.given)] = (due_ms, row.given, len(of_key))
    for key, of_key in pending.items():
        yield from _fired(key, of_key, max(row.timestamp_ms for row in rows) + 8 * SECOND_MS)


def _fired(key: str, pending: dict[str, tuple[int, int, int]], until_ms: int) -> Iterator[tuple[str, int]]:
    for name, (due_ms, value, others) in list(pending.items()):
        if due_ms <= until_ms:
            del pending[name]
            yield key, 100 * value + others


class Totals(sf.Operator[str, int, list[int]]):
    """At each tick: when it is, and the sum of a key's values since the one before."""

    every = sf.Every(timedelta(milliseconds=_TICK_MS))
    total: sf.Value[int | None] = sf.state()

    def on_record(self, value: int, ctx: sf.Context[list[int]]) -> None:  # noqa: ARG002 - told at the tick
        """Add."""
        self.total.set((self.total.get() or 0) + value)

    def on_every(self, ctx: sf.Context[list[int]]) -> None:
        """Tell, and begin anew."""
        total = self.total.get()
        assert total is not None, "without state a key takes no part"
        ctx.emit([ctx.timestamp_ms, total])
        self.total.clear()


def _rounds(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, sf.Json)
    inputs.stream().process(Totals, name="totals", order="event-time").to(topic)
    return topic, "all"


def _rounds_results(rows: Sequence[Row]) -> Results:
    totals: dict[tuple[str, int], int] = defaultdict(int)
    for row in rows:
        totals[row.key, (row.timestamp_ms // _TICK_MS + 1) * _TICK_MS] += row.given
    return [(key, (tick_ms, total)) for (key, tick_ms), total in totals.items()]


def _suppressed(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    ordered = inputs.stream().in_order(name="sorted")
    ordered.suppress(sf.Every(timedelta(milliseconds=_TICK_MS)), name="newest").to(topic)
    return topic, "all"


def _suppressed_results(rows: Sequence[Row]) -> Results:
    newest = {(row.key, row.timestamp_ms // _TICK_MS): row.given for row in _by_time(rows)}
    return [(key, value) for (key, _), value in newest.items()]


def _limited(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    ordered = inputs.stream().in_order(name="sorted")
    ordered.suppress(sf.TimeLimit(timedelta(milliseconds=_TICK_MS)), name="newest").to(topic)
    return topic, "all"


def _limited_results(rows: Sequence[Row]) -> Results:
    """Held from a key's first record on; what comes when it is due is held from then on."""
    first_ms: dict[str, int] = {}
    newest: dict[str, int] = {}
    for row in _by_time(rows):
        if row.key in newest and row.timestamp_ms >= first_ms[row.key] + _TICK_MS:
            yield row.key, newest.pop(row.key)
        if row.key not in newest:
            first_ms[row.key] = row.timestamp_ms
        newest[row.key] = row.given
    yield from newest.items()


def _bounded(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    ordered = inputs.stream().in_order(name="sorted")
    limit = sf.TimeLimit(timedelta(milliseconds=_TICK_MS), max_records=2)
    ordered.suppress(limit, name="newest").to(topic)
    return topic, "newest"


def _newest_results(rows: Sequence[Row]) -> Results:
    return {row.key: row.given for row in _by_time(rows)}.items()


def _by_time(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.timestamp_ms, row.number))
