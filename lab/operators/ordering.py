"""Records in the order of event time, and duplicates left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import stateflow as sf
from stateflow.lab.operators.logs import Row, marked, within_grace
from stateflow.lab.operators.verb import Inputs, Rule, Verb, output

_GRACE_MS, _WITHIN_MS, _LATE_MS = 3_000, 4_000, 6_000
_KINDS = 6
Results = Iterable[tuple[Any, Any]]


def ordering_verbs() -> list[Verb]:
    """All of them."""
    return [
        Verb("in_order", _in_order, _in_order_results, late_ms=_LATE_MS),
        Verb("process in the order of event time", _ordered, _ordered_results),
        Verb("dedup", _dedup, _dedup_results, late_ms=_LATE_MS),
        Verb("top with falling scores", _top, _top_results, late_ms=_LATE_MS),
    ]


class Follow(sf.Operator[str, int, int]):
    """Says a number that depends on all values so far and on their order, and on timers between them."""

    state: sf.Value[int] = sf.state(default=1)

    def on_record(self, value: int, ctx: sf.Context[int]) -> None:
        """One more."""
        self.state.set((3 * self.state.get() + value) % 10_007)
        ctx.emit(self.state.get())
        ctx.timer("pause", after=timedelta(milliseconds=1_500))

    def on_timer(self, name: str, ctx: sf.Context[int]) -> None:  # noqa: ARG002 - it has but one
        """Nothing has come for a while."""
        self.state.set((5 * self.state.get() + 1) % 10_007)


def _followed(rows: Iterable[Row]) -> Results:
    """Of rows in order."""
    states: dict[str, int] = defaultdict(lambda: 1)
    before: dict[str, int] = {}
    for row in rows:
        if row.key in before and row.timestamp_ms >= before[row.key] + 1_500:
            states[row.key] = (5 * states[row.key] + 1) % 10_007
        states[row.key] = (3 * states[row.key] + row.given) % 10_007
        before[row.key] = row.timestamp_ms
        yield row.key, states[row.key]


def _in_order(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    grace = timedelta(milliseconds=_GRACE_MS)
    ordered = inputs.stream().in_order(name="sorted", grace=grace, tie_break=lambda value: -value)
    ordered.process(Follow, name="follow").to(topic)
    return topic, "all"


def _in_order_results(rows: Sequence[Row]) -> Results:
    kept = within_grace(rows, _GRACE_MS)
    return _followed(sorted(kept, key=lambda row: (row.timestamp_ms, -row.given, row.number)))


def _ordered(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    inputs.stream().process(Follow, name="follow", order="event-time").to(topic)
    return topic, "all"


def _ordered_results(rows: Sequence[Row]) -> Results:
    return _followed(sorted(rows, key=lambda row: (row.timestamp_ms, row.number)))


def _dedup(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs)
    within = timedelta(milliseconds=_WITHIN_MS)
    inputs.stream().dedup(name="once", by=lambda value: value % _KINDS, within=within).to(topic)
    return topic, "all"


def _dedup_results(rows: Sequence[Row]) -> Results:
    seen: dict[tuple[str, int], int] = {}
    for row, mark_ms in marked(rows):
        identity = row.key, row.given % _KINDS
        if identity not in seen or seen[identity] + _WITHIN_MS <= mark_ms:
            seen[identity] = row.timestamp_ms
            yield row.key, row.given


def _top(inputs: Inputs) -> tuple[sf.Topic[Any, Any], Rule]:
    topic = output(inputs, sf.Json)
    scored = inputs.stream().top(3, name="best", by=_score, item=lambda value: value % _KINDS)
    scored.to(topic)
    return topic, "all"


def _score(value: int) -> int | None:
    return None if value % 7 == 0 else value // 10


def _top_results(rows: Sequence[Row]) -> Results:
    scores: dict[str, dict[int, int]] = defaultdict(dict)
    for row in rows:
        of_key, score = scores[row.key], _score(row.given)
        before = _best(of_key)
        if score is None:
            of_key.pop(row.given % _KINDS, None)
        else:
            of_key[row.given % _KINDS] = score
        if _best(of_key) != before:
            yield row.key, _best(of_key)


def _best(scores: dict[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:3])
